"""Draw the picture of the front page: `python -m studies.front` writes docs/images/front.png.

Two flows with RTTs of 10 and 50 ms share 20 Mbit/s: as two BBR flows, and as two flows of the shipped policy.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from bbrgym.benchmark.plots import over_time
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace import Trace, simulate
from studies.page import write_figure

PAGE: Final = Path(__file__).parents[1] / "docs" / "images"
TITLES: Final = {"bbr": "two flows of BBR", "policy": "two flows of the shipped policy"}


def run(algorithm: str) -> Trace:
    """Return the run of two flows of an algorithm."""
    flows = (Flow(algorithm, rtt_ms=10), Flow(algorithm, rtt_ms=50))
    return simulate(Scenario(rate_mbps=20, buffer_bdp=5, duration_s=40, flows=flows), engine="native", seed=1)


def picture() -> Figure:
    """Return the throughput of each flow and the queue of both runs, side by side."""
    runs = {title: run(algorithm) for algorithm, title in TITLES.items()}
    return over_time(runs, ("throughput_mbps", "link_queue_mean_ms"), window_s=1.0)


def main() -> int:
    """Write the picture and print its path."""
    print(PAGE.parent / write_figure(picture(), PAGE, "front"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

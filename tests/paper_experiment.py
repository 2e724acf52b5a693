"""Results of a paper's experiment, made up."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from bbrgym import Scenario
from bbrgym.benchmark.metrics import MEASURED


def made_up_results(
    scenarios: Mapping[str, Scenario], competitors: Sequence[str] = ("bbr", "bbq"), seeds: int = 3
) -> pd.DataFrame:
    """Return results with random numbers, without any run."""
    random = np.random.default_rng(7)
    rows = []
    for seed in range(1, seeds + 1):
        for name, scenario in scenarios.items():
            for competitor in competitors:
                run = dict.fromkeys(MEASURED, 1.0) | {"link_jain": 0.5 + 0.5 * random.random(), "convergence_s": 2.0}
                names = {"scenario": name, "competitor": competitor, "seed": seed, "key": "-", "trace_hash": str(seed)}
                for index, flow in enumerate(scenario.flows):
                    of_flow = {"flow": index, "rtt_ms": flow.rtt_ms, "algorithm": competitor}
                    rows.append(run | of_flow | {"throughput_mbps": 9 + random.random()} | names)
    return pd.DataFrame(rows)

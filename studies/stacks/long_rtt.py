"""Show what aioquic's CUBIC does with its window at an RTT of 2 s or more (docs/stacks.md).

Three runs of 15 s: CUBIC at half of that RTT, CUBIC beyond it, and Reno beyond it.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Final

from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.linux.engine import LinuxEngine
from bbrgym.envs.linux.qlog import add_qlog, read_qlog
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import simulate
from bbrgym.output import run_program
from studies import blocks, page
from studies.stacks.__main__ import LOG, aioquic

MARK: Final = "studies.stacks.long_rtt"
SECONDS: Final = 15
CASES: Final = (("cubic", 1000.0), ("cubic", 2100.0), ("reno", 2100.0))


def row(control: str, rtt_ms: float) -> list[str]:
    """Run a case and return its row: the window every 3 s."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flow = aioquic(control, folder, rtt_ms)
        scenario = Scenario(rate_mbps=20, packet_bytes=1460, duration_s=SECONDS, flows=(flow,))
        with contextlib.closing(LinuxEngine(max_lateness_ms=5, timeout_s=30)) as engine:
            trace = add_qlog(simulate(scenario, engine, step_ms=1000), 0, read_qlog(folder / LOG))
    cwnd = trace.flows[:, 0, FLOW_COLUMNS.index("cwnd_packets")] * scenario.packet_bytes / 1200
    shown = [f"{cwnd[trace.time_s <= time_s + 0.01][-1]:.0f}" for time_s in range(3, SECONDS + 1, 3)]
    return [f"aioquic, {control}", f"{rtt_ms:g}", *shown, f"{trace.summary().flows[0].sent_packets}"]


def main() -> int:
    """Run, print the table and write it into a page; return the exit status."""
    given = blocks.parser(__doc__, MARK).parse_args()
    heads = ["stack", "RTT, ms", *(f"{time_s} s" for time_s in range(3, SECONDS + 1, 3)), "sent"]
    publish = page.table(heads, [row(control, rtt_ms) for control, rtt_ms in CASES])
    blocks.publish(publish, MARK, given.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_program("long_rtt", main))

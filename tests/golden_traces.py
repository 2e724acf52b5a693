"""Golden traces: every controller's decisions on one fixed path with loss and a pause, every 20 ms.

`python tests/golden_traces.py` writes them to tests/golden/<name>.json.
"""

from __future__ import annotations

import json
from pathlib import Path as FilePath

from ack_path import MS, PACKET, Path
from policies import make_controller

from bbrgym import _controllers as cc


def golden_trace(name: str) -> list[list[int]]:
    """[window in bytes, pacing rate in bit/s, bytes in flight] every 20 ms of 12 s."""
    controller = make_controller(name, {}, PACKET, 10 * PACKET, 30 * MS, 42)
    # A buffer of one BDP overflows by itself; every 1500th packet is lost besides.
    path = Path(controller, rate_mbps=20, rtt_ms=30, buffer_packets=75, lose=lambda number: number % 1500 == 1499)
    trace = []
    for step in range(600):
        path.run_until(20 * (step + 1))
        decision = controller.decision()
        trace.append([decision.cwnd, decision.pacing_rate, path.in_flight])
    return trace


if __name__ == "__main__":
    folder = FilePath(__file__).parent / "golden"
    folder.mkdir(exist_ok=True)
    for algorithm in cc.controllers():
        rows = ",\n".join(json.dumps(row) for row in golden_trace(algorithm))
        (folder / f"{algorithm}.json").write_text(f"[{rows}]\n")

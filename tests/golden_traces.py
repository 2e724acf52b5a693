"""Golden traces: the decisions of every controller on one fixed path with losses, every 20 ms for 12 s.

`python tests/golden_traces.py` writes them to tests/golden/<name>.json: two rows for a reader, each with a hash of all
rows up to it. The file also has a hash of the parameters with their defaults and ranges.
"""

import hashlib
import json
from pathlib import Path as FilePath
from typing import Final

from ack_path import MS, PACKET, Path
from policies import make_controller

from bbrgym import _controllers as cc

FOLDER: Final = FilePath(__file__).parent / "golden"
COLUMNS: Final = ("time_ms", "cwnd_bytes", "pacing_rate_bps", "in_flight_bytes", "hash_until_here")
INTERVAL_MS: Final = 20
ROWS: Final = 600
KEPT: Final = 300  # every 300th row, that is 6 s

Row = tuple[int | str, ...]


def golden_trace(name: str) -> list[Row]:
    """Return some rows of the trace, with the columns of `COLUMNS`."""
    controller = make_controller(name, {}, packet_bytes=PACKET, initial_cwnd=10 * PACKET, initial_rtt=30 * MS, seed=42)
    # The buffer of one BDP overflows by itself; every 1500th packet is lost as well.
    path = Path(controller, rate_mbps=20, rtt_ms=30, buffer_packets=75, lose=lambda number: number % 1500 == 1499)
    digest = hashlib.sha256()
    kept = []
    for step in range(1, ROWS + 1):
        path.run_until(INTERVAL_MS * step)
        decision = controller.decision()
        row = (INTERVAL_MS * step, decision.cwnd, decision.pacing_rate, path.in_flight)
        digest.update(f"{row}".encode())
        if step % KEPT == 0:
            kept.append((*row, digest.hexdigest()))
    return kept


def hash_parameters(name: str) -> str:
    """Hash the name, the default and the range of each parameter, as the error for a value out of range says it."""
    digest = hashlib.sha256()
    for parameter, default in cc.defaults(name).items():
        try:
            cc.check(name, {parameter: 1e300})
        except ValueError as error:
            bounds = str(error).partition(" must be ")[2].partition(", got")[0]
            digest.update(f"{parameter} {default!r} {bounds}\n".encode())
    return digest.hexdigest()


def check_golden_trace(name: str) -> None:
    """Compare a controller with its golden trace.

    Raises:
        FileNotFoundError: it has none yet.
        AssertionError: it decides differently; the message shows where the first difference lies.
    """
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{name} has no golden trace; `python tests/golden_traces.py` writes tests/golden/")
    content = json.loads(path.read_text())
    assert hash_parameters(name) == content["parameters"], f"{name} has other parameters, defaults or ranges"
    golden = [tuple(row) for row in content["rows"]]
    for index, (before, now) in enumerate(zip(golden, golden_trace(name), strict=True)):
        if before != now:
            since_ms = golden[index - 1][0] if index else 0
            raise AssertionError(
                f"{name} decides differently, first after {since_ms} ms and by {before[0]} ms:\n"
                + "\n".join(
                    f"  {column:16} golden {a!s:>14.14} now {b!s:>14.14}"
                    for column, a, b in zip(COLUMNS, before, now, strict=True)
                )
            )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for algorithm in cc.controllers():
        rows = ",\n  ".join(json.dumps(row) for row in golden_trace(algorithm))
        parameters = hash_parameters(algorithm)
        (FOLDER / f"{algorithm}.json").write_text(f'{{\n "parameters": "{parameters}",\n "rows": [\n  {rows}\n ]\n}}\n')

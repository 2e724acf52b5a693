"""`bbrgym lab`: the playground on this machine, with the runs that are saved here (docs/playground.md)."""

from __future__ import annotations

import json
import math
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.trace_file import load_trace
from bbrgym.files import DAMAGES

PAGE: Final = Path(__file__).parents[2] / "build" / "playground"
"""What `make playground` writes."""

_MOST_RUNS: Final = 200
_MOST_FLOWS: Final = 8
"""As in playground/scenario.js."""


def make_server(page: Path = PAGE, root: Path | None = None, port: int = 0) -> ThreadingHTTPServer:
    """Return a server of the page on 127.0.0.1.

    Args:
        page: the folder of `make playground`.
        root: the folder that has runs/; None serves no runs.
        port: 0 takes a free one.

    Raises:
        FileNotFoundError: the page is not built.
    """
    if not (page / "engine.wasm").is_file():
        raise FileNotFoundError(f"no playground in '{page}': build it with `make playground` in a checkout")
    return ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, directory=str(page), root=root))


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *arguments: Any, root: Path | None, **settings: Any) -> None:
        self._root = root
        super().__init__(*arguments, **settings)

    def do_GET(self) -> None:
        if self._root is None:
            super().do_GET()
        elif self.path == "/":
            self.send_response(302)
            self.send_header("Location", "/?lab")
            self.end_headers()
        elif self.path.startswith("/saved/"):
            number, runs = self.path.removeprefix("/saved/"), saved_runs(self._root)
            if not number:
                self._send([title_of(path, self._root) for path in runs])
            elif number.isdigit() and int(number) < len(runs):
                self._send(plain_run(runs[int(number)]))
            else:
                self.send_error(404)
        else:
            super().do_GET()

    def _send(self, content: Any) -> None:
        body = json.dumps(content, allow_nan=False).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing: the page asks for many files."""


def saved_runs(root: Path) -> list[Path]:
    """Return the traces of evaluations and benchmarks in runs/, the newest first."""
    runs = root / "runs"
    found = [*runs.glob("evaluate/**/traces/*.parquet"), *runs.glob("benchmark/**/trace.parquet")]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[:_MOST_RUNS]


def title_of(path: Path, root: Path) -> str:
    """Return a line about a trace: where it lies, its flows, rate, seed and engine."""
    from pyarrow.parquet import read_schema

    kind, name = path.relative_to(root / "runs").parts[:2]
    try:
        origin = json.loads(read_schema(path).metadata[b"bbrgym"])
        algorithms = " + ".join(flow["algorithm"] for flow in origin["scenario"]["flows"][:_MOST_FLOWS])
        text = f"{algorithms}, {origin['scenario']['rate_mbps']:g} Mbit/s, seed {origin['seed']}, {origin['engine']}"
    except (OSError, *DAMAGES):
        text = "cannot be read"
    return f"{kind} {name}: {text}"


def plain_run(path: Path) -> dict[str, Any]:
    """Return a trace for the page: its first flows, with null for NaN.

    `error` says why the page cannot show it, if so.
    """
    try:
        trace = load_trace(path)
    except (OSError, ValueError) as error:
        return {"error": str(error)}
    if len(trace.scenario.flows) > _MOST_FLOWS:
        return {"error": f"the page shows at most {_MOST_FLOWS} flows, and this run has {len(trace.scenario.flows)}"}
    return {
        "scenario": trace.scenario.to_dict(),
        "seed": trace.seed,
        "engine": trace.engine,
        "columns": {"flow": list(FLOW_COLUMNS), "link": list(LINK_COLUMNS)},
        "time": trace.time_s.tolist(),
        "flows": _plain(trace.flows.reshape(len(trace.time_s), -1)),
        "link": _plain(trace.link),
    }


def _plain(array: npt.NDArray[np.float64]) -> list[list[float | None]]:
    return [[None if math.isnan(value) else value for value in row] for row in array.tolist()]

"""`bbrgym lab`: the playground on this machine, with the runs that are saved here (docs/playground.md)."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.trace import Trace
from bbrgym.envs.trace_file import load_trace
from bbrgym.files import DAMAGES, damage

_BUILT: Final = Path(__file__).parents[2] / "build" / "playground"
_INSTALLED: Final = Path(__file__).with_name("playground")

PAGE: Final = _INSTALLED if not _BUILT.is_dir() and _INSTALLED.is_dir() else _BUILT
"""What `make playground` writes in a checkout, or its copy in a wheel."""

_MOST_BYTES: Final = 200_000_000
"""Of a trace that the browser sends."""
_PARQUET: Final = "application/vnd.apache.parquet"
"""The type of such a trace. Pages of other sites cannot send it without this server's consent (CORS)."""
_MOST_RUNS: Final = 2000
"""The list has the newest ones."""
_MOST_FLOWS: Final = 8
"""As in playground/scenario.js."""


def make_server(page: Path = PAGE, root: Path | None = None, port: int = 0) -> ThreadingHTTPServer:
    """Return a server of the page on 127.0.0.1, which answers requests to names of this machine only.

    A page of another site can make its own name lead to this machine (DNS rebinding). The request's Host says so.

    Args:
        page: the folder of `make playground`.
        root: the folder that has runs/; None serves no runs.
        port: 0 takes a free one.

    Raises:
        FileNotFoundError: the page is not built.
    """
    if not (page / "index.html").is_file():
        raise FileNotFoundError(f"no playground in '{page}': build it with `make playground` in a checkout")
    return ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, directory=str(page), root=root))


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *arguments: Any, root: Path | None, **settings: Any) -> None:
        self._root = root
        super().__init__(*arguments, **settings)

    def handle(self) -> None:
        with suppress(ConnectionError):  # the browser has left the page
            super().handle()

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        known, given = _hosts(*self.connection.getsockname()), self.headers.get_all("Host", [])
        if len(given) == 1 and given[0].lower() in known:
            return True
        host = ", ".join(given) or "none"
        self.send_error(HTTPStatus.MISDIRECTED_REQUEST, explain=f"Host must be one of {', '.join(known)}, got {host}")
        return False

    def do_GET(self) -> None:
        if self._root is None:
            super().do_GET()
        elif self.path == "/":
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", "/?lab")
            self.end_headers()
        elif self.path == "/saved/":
            runs = saved_runs(self._root)
            named = name_runs(runs[:_MOST_RUNS], self._root)
            self._send({"runs": [asdict(run) for run in named], "count": len(runs)})
        elif self.path.startswith("/saved/"):
            key = unquote(self.path.removeprefix("/saved/"))
            path = next((path for path in saved_runs(self._root) if key_of(path, self._root) == key), None)
            if path is None:
                self._send({"error": f"there is no run '{key}' any more"}, HTTPStatus.NOT_FOUND)
            else:
                self._send(plain_run(path))
        else:
            super().do_GET()

    def do_POST(self) -> None:
        """Answer with the trace that the browser sends, whose name is behind the question mark."""
        path, _, name = self.path.partition("?")
        length = self.headers.get("Content-Length", "")
        if self._root is None or path != "/saved/" or self.headers.get("Content-Type") != _PARQUET:
            self._refuse({"error": f"only traces of the type {_PARQUET} can be sent, to /saved/"}, HTTPStatus.FORBIDDEN)
        elif not length.isdecimal() or int(length) > _MOST_BYTES:
            self._refuse(
                {"error": f"a trace must have at most {_MOST_BYTES / 1e6:g} MB"}, HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            )
        else:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "trace.parquet"
                file.write_bytes(self.rfile.read(int(length)))
                self._send(plain_run(file, unquote(name)))

    def _refuse(self, content: Any, status: HTTPStatus) -> None:
        self.close_connection = True  # the body is not read
        self._send(content, status)

    def _send(self, content: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        body = json.dumps(content, allow_nan=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing: the page asks for many files."""


def _hosts(address: str, port: int) -> list[str]:
    """Return what the Host of a request may be: the server's address, or the loopback's, with the port."""
    names = dict.fromkeys([address, "127.0.0.1", "localhost", "[::1]"])
    hosts = [f"{name}:{port}" for name in names]
    if port == 80:
        hosts += names
    return hosts


@dataclass(frozen=True)
class SavedRun:
    """A saved run in the page's list.

    Attributes:
        key: its path in runs/, which stays the same when other runs are saved.
        group: its benchmark and scenario, or its evaluation.
        title: its competitor and seed, or what it has.
    """

    key: str
    group: str
    title: str


def saved_runs(root: Path) -> list[Path]:
    """Return the traces of evaluations, benchmarks and `bbrgym simulate --save` in runs/, the newest first."""
    runs = root / "runs"
    found = {}
    patterns = ("evaluate/**/traces/*.parquet", "benchmark/**/runs/*/trace.parquet", "simulate/*.parquet")
    for path in (path for pattern in patterns for path in runs.glob(pattern)):
        try:
            found[path] = path.stat().st_mtime
        except OSError:  # deleted meanwhile
            continue
    return sorted(found, key=lambda path: found[path], reverse=True)


def key_of(path: Path, root: Path) -> str:
    """Return the key of a trace: its path in runs/."""
    return path.relative_to(root / "runs").as_posix()


def name_runs(paths: Iterable[Path], root: Path) -> list[SavedRun]:
    """Return traces with names, by group; the group of the newest trace is the first.

    A benchmark's runs have the names and the order of its plan. One that its plan lacks is of an earlier one.
    """
    plans: dict[Path, dict[str, list[tuple[int, str, str]]]] = {}
    groups: dict[str, list[tuple[int, SavedRun]]] = {}
    for path in paths:
        folder = path.parents[2]  # of FOLDER/runs/<key>/trace.parquet; of an evaluation, one above it
        key = key_of(path, root)
        if key.startswith("benchmark/"):
            if folder not in plans:
                plans[folder] = _names_of_plan(folder)
            place = folder.relative_to(root / "runs").as_posix()
            named = plans[folder].get(path.parent.name) or [(0, "not in its plan", _describe(path))]
        elif key.startswith("simulate/"):
            place, named = "simulate", [(0, "", f"{path.stem}: {_describe(path)}")]
        else:
            place = path.parent.parent.relative_to(root / "runs").as_posix()
            named = [(0, "", _describe(path))]
        for order, scenario, title in named:
            group = ": ".join(filter(None, [place.replace("/", " ", 1), scenario]))
            groups.setdefault(group, []).append((order, SavedRun(key, group, title)))
    return [run for group in groups.values() for _, run in sorted(group, key=lambda one: one[0])]


def _names_of_plan(benchmark: Path) -> dict[str, list[tuple[int, str, str]]]:
    """Return place, scenario and title of each run of a benchmark's plan, by key; a run may have several names."""
    names: dict[str, list[tuple[int, str, str]]] = {}
    try:
        plan = json.loads((benchmark / "benchmark.json").read_text(encoding="utf-8"))
        for place, run in enumerate(plan["runs"]):
            title = f"{run['competitor']}, seed {run['seed']}"
            names.setdefault(str(run["key"]), []).append((place, str(run["scenario"]), title))
    except DAMAGES:
        return {}
    return names


def _describe(path: Path) -> str:
    """Return a trace in words: its flows, rate, seed and engine."""
    from pyarrow.parquet import read_schema

    try:
        origin = json.loads(read_schema(path).metadata[b"bbrgym"])
        algorithms = " + ".join(flow["algorithm"] for flow in origin["scenario"]["flows"][:_MOST_FLOWS])
        return f"{algorithms}, {origin['scenario']['rate_mbps']:g} Mbit/s, seed {origin['seed']}, {origin['engine']}"
    except DAMAGES:
        return f"{path.stem}: cannot be read"


def plain_run(path: Path, name: str = "") -> dict[str, Any]:
    """Return a trace for the page: its first flows, with null for NaN.

    `error` says why the page cannot show it, if so. It calls the file by its name, or by its path.
    """
    try:
        trace = load_trace(path)
    except DAMAGES as error:
        why = damage(error).replace(str(path), name or str(path))
        return {"error": f"{name or path} cannot be read: {why}"}
    if len(trace.scenario.flows) > _MOST_FLOWS:
        return {"error": f"the page shows at most {_MOST_FLOWS} flows, and this run has {len(trace.scenario.flows)}"}
    return plain_trace(trace)


def plain_trace(trace: Trace) -> dict[str, Any]:
    """Return a trace for the page, in plain types, with null for NaN."""
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

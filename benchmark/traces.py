"""A folder of trace files as the scenarios of a benchmark (docs/traces.md)."""

from __future__ import annotations

import json
import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import yaml

from bbrgym.checks import check_keys
from bbrgym.envs import time_series
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.text_lines import read_lines

Array = npt.NDArray[np.float64]

OPTIONS: Final = "traces.yaml"
"""The file of a folder that says how to read others: {pattern: {rate_trace: {...}}}, or rtt_trace."""

_KINDS: Final = ("rate_trace", "rtt_trace")

_MOST_LETTERS: Final = 200
"""Of the reason why a file is left out."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class TraceFile:
    """A file of a folder.

    Attributes:
        name: its path in the folder.
        kind: `rate_trace` or `rtt_trace`; "" if it cannot be read.
        scenario: the scenario that it becomes; None if it cannot be read.
        reason: why it cannot be read.
    """

    name: str
    kind: str
    scenario: Scenario | None
    reason: str = ""


def scenarios_of(traces: Mapping[str, Any]) -> dict[str, Scenario]:
    """Return the scenarios of a benchmark's `traces`, by the files' names, and log a warning per file that is none.

    Args:
        traces: `folder`, and `scenario`: the fields that all scenarios have.

    Raises:
        ValueError: an entry is bad, or no file can be read.
    """
    check_keys("benchmark.traces", traces, ("folder", "scenario"))
    if not traces.get("folder"):
        raise ValueError("benchmark.traces.folder must be a folder of trace files: folder=PATH (docs/traces.md)")
    files = read_folder(Path(traces["folder"]).expanduser(), traces.get("scenario") or {})
    found = {file.name: file.scenario for file in files if file.scenario is not None}
    for file in files:
        if file.scenario is None:
            _warn(file.name, file.reason)
    if not found:
        reasons = "".join(f"\n  {file.name}: {file.reason}" for file in files)
        raise ValueError(f"no file in {traces['folder']} can be read as a trace{reasons}")
    return found


def read_folder(folder: Path, template: Mapping[str, Any]) -> list[TraceFile]:
    """Read the files of a folder and of those in it, by name, but for hidden ones, `OPTIONS`, and bbrgym's own `runs`.

    Args:
        folder: where they are.
        template: fields of a scenario. A trace of rates sets `rate_mbps` to its mean, too; one of RTTs sets `rtt_ms` of
            every flow.

    Raises:
        ValueError: there is no such folder, or its `OPTIONS` are bad.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder '{folder}'")
    options = _read_options(folder / OPTIONS)
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_hidden = any(part.startswith(".") or part == "runs" for part in Path(name).parts)
        if not path.is_file() or path.name == OPTIONS or is_hidden:
            continue
        given: Any = next((own for pattern, own in options.items() if fnmatch(name, pattern)), {})
        state = path.stat()
        found.append(
            _read_file(
                str(path),
                name,
                given=json.dumps(given),
                template=json.dumps(template),
                changed_ns=state.st_mtime_ns,
                size=state.st_size,
            )
        )
    return found


def rates_of(scenario: Scenario, kind: str, step_s: float = 0.1) -> Array:
    """Return the means of a trace's schedule over steps of the scenario's duration: Mbit/s, or ms of an RTT."""
    is_rate = kind == "rate_trace"
    schedule = scenario.rate_schedule if is_rate else scenario.flows[0].rtt_schedule
    first = scenario.rate_mbps if is_rate else scenario.flows[0].rtt_ms
    count = len(np.arange(0, scenario.duration_s - step_s / 2, step_s))
    edges = np.arange(count + 1) * step_s
    times = np.array([time for time, _ in schedule])
    values = np.array([first, *(value for _, value in schedule)])
    begins = np.searchsorted(times, edges[:-1] + 1e-9, side="right")
    ends = np.searchsorted(times, edges[1:] - 1e-9, side="left")
    knots = np.concatenate([[0.0], times, [max(edges[-1], *times, 0.0) + 1.0]])
    total = np.concatenate([[0.0], np.cumsum(values * np.diff(knots))])
    means = np.diff(np.interp(edges, knots, total)) / step_s
    return np.where(begins == ends, values[begins], means)  # to the last digit, where nothing changes in a step


def mean_of(scenario: Scenario, kind: str) -> float:
    """Return the mean of `rates_of`, rounded once: that of equal values is their value."""
    return float(statistics.mean(rates_of(scenario, kind).tolist()))


@cache
def _warn(name: str, reason: str) -> None:
    """Log why a file is left out; once in a process, which may read the folder several times."""
    _LOG.warning("%s is left out: %s", name, reason)


@lru_cache(maxsize=1000)
def _read_file(path: str, name: str, given: str, template: str, changed_ns: int, size: int) -> TraceFile:
    """Read a file; once, as long as it does not change. `given` and `template` are JSON."""
    options: dict[str, Any] = json.loads(given)
    tried = [kind for kind in _KINDS if kind in options] or (
        ["rate_trace", "rtt_trace"] if _is_rtt(path) else ["rate_trace"]
    )
    reason = ""
    for kind in tried:
        try:
            return TraceFile(name, kind, _scenario(path, kind, options.get(kind) or {}, json.loads(template)))
        except (TypeError, ValueError, OSError, ModuleNotFoundError) as error:
            text = str(error).replace(f"{path}: ", "").replace(f"{path}:", "line ", 1)
            reason = "".join(letter if letter.isprintable() else " " for letter in text)[:_MOST_LETTERS]
    return TraceFile(name, "", None, reason)


def _scenario(path: str, kind: str, options: Mapping[str, Any], template: dict[str, Any]) -> Scenario:
    """Return the scenario of a file, from its first sample on if `options` do not say otherwise."""
    trace = {"file": path, **options}
    first, *others = template.get("flows") or [{}]

    def read() -> tuple[Scenario, Sequence[tuple[float, float]]]:
        if kind == "rate_trace":
            scenario = Scenario.from_dict({**template, kind: trace})
            return scenario, scenario.rate_schedule
        scenario = Scenario.from_dict({**template, "flows": [{**first, kind: trace}, *others]})
        return scenario, scenario.flows[0].rtt_schedule

    scenario, schedule = read()
    if schedule[0][0] > 0 and "from_s" not in options:
        trace["from_s"] = schedule[0][0]
        scenario, schedule = read()
    mean = mean_of(scenario, kind)
    if kind == "rate_trace":
        return Scenario.from_dict({**template, "rate_mbps": mean, "rate_schedule": schedule})
    rtt = {"rtt_ms": mean, "rtt_schedule": schedule}
    return Scenario.from_dict({**template, "flows": [{**flow, **rtt} for flow in (first, *others)]})


def _is_rtt(path: str) -> bool:
    """Return whether a file says that it has RTTs: it is of `irtt`, or its first line names them."""
    try:
        first = next(read_lines(path), "")[:4000]
        return time_series.format_of({"file": path}, time_series.RTT) == "irtt" or any(
            word in first.lower() for word in time_series.RTT.words
        )
    except (OSError, ValueError, ModuleNotFoundError):
        return False


def _read_options(path: Path) -> dict[str, Any]:
    """Return how to read the files of a folder, by pattern; {} if it does not say."""
    if not path.is_file():
        return {}
    try:
        options = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(options, dict):
        raise ValueError(f"{path} must be a mapping of patterns, got {options!r}")
    for pattern, given in options.items():
        check_keys(f"{path}: {pattern}", given, _KINDS)
    return options

"""Files of a benchmark: traces, figures, and how they get in place whole or not at all."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Trace


def save_trace(trace: Trace, path: Path) -> None:
    """Write a trace as Parquet: `trace.rows`, with the scenario, seed, engine and step in the file's metadata."""
    import pyarrow
    import pyarrow.parquet

    origin = {
        "scenario": trace.scenario.to_dict(),
        "seed": trace.seed,
        "engine": trace.engine,
        "step_ms": trace.step_ms,
    }
    table = pyarrow.Table.from_pandas(trace.rows, preserve_index=False)
    metadata = {**(table.schema.metadata or {}), b"bbrgym": json.dumps(origin).encode()}
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), path, compression="zstd")


def load_trace(path: Path) -> Trace:
    """Read what `save_trace` wrote. A column that this version has and the file has not is NaN.

    Raises:
        ValueError: the file is no trace.
    """
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    origin = json.loads((table.schema.metadata or {}).get(b"bbrgym", b"null"))
    if origin is None:
        raise ValueError(f"{path} is no trace: write one with save_trace")
    scenario = Scenario.from_dict(origin.pop("scenario"))
    frame = table.to_pandas()
    steps, flows = len(frame) // len(scenario.flows), len(scenario.flows)
    link = frame.reindex(columns=[f"link_{name}" for name in LINK_COLUMNS]).to_numpy(dtype=np.float64)
    return Trace(
        scenario=scenario,
        time_s=frame["time_s"].to_numpy(dtype=np.float64)[::flows],
        flows=frame.reindex(columns=list(FLOW_COLUMNS)).to_numpy(dtype=np.float64).reshape(steps, flows, -1),
        link=link[::flows],
        **origin,
    )


def load_metrics(directory: Path) -> dict[str, Any] | None:
    """The metrics.json of a run's directory, null as NaN; None if the run is not there whole."""
    try:
        if not (directory / "trace.parquet").is_file():
            return None
        metrics: dict[str, Any] = json.loads((directory / "metrics.json").read_text())
        metrics["rows"] = [
            {name: math.nan if value is None else value for name, value in row.items()} for row in metrics["rows"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return metrics


def write_json(path: Path, content: object) -> None:
    """Write plain types as JSON, NaN and infinities as null, in one move."""
    replace_file(path, lambda to: to.write_text(json.dumps(_strict(content), indent=1) + "\n"))


def _strict(content: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    if isinstance(content, Mapping):
        return {str(key): _strict(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_strict(value) for value in content]
    if isinstance(content, float | np.floating):
        return float(content) if math.isfinite(content) else None
    if isinstance(content, np.integer):
        return int(content)
    return content


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place and move it there, so that a reader never sees half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    write(beside)
    beside.replace(path)


def with_block(document: str, block: str, begin: str, end: str) -> str:
    """A document with `block` between two marks, lines of their own, and all else as it was.

    Raises:
        ValueError: it does not have the two marks, once each and in order.
    """
    before, found_begin, rest = document.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end or begin in after or end in before + after:
        raise ValueError(f"the document must have one line {begin} and after it one line {end}")
    return f"{before}{begin}\n{block}\n{end}{after}"


def write_block(path: Path, block: str, begin: str, end: str) -> None:
    """Put `block` between two marks of a document, in one move.

    Raises:
        OSError: the document cannot be read or written.
        ValueError: it does not have the two marks, once each and in order.
    """
    document = with_block(path.read_text(encoding="utf-8"), block, begin, end)
    replace_file(path, lambda to: to.write_text(document, encoding="utf-8"))

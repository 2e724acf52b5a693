"""Traces as Parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.scenario import Scenario, known_units
from bbrgym.envs.trace import Trace
from bbrgym.extras import optional
from bbrgym.files import check_object


def save_trace(trace: Trace, path: Path) -> None:
    """Write the columns of `trace.rows` as Parquet, with the other attributes in the file's metadata."""
    with optional("a trace file"):
        import pyarrow
        import pyarrow.parquet

    origin: dict[str, Any] = {
        "scenario": trace.scenario.to_dict(),
        "seed": trace.seed,
        "engine": trace.engine,
        "step_ms": trace.step_ms,
    }
    if trace.timing:
        origin["timing"] = dict(trace.timing)
    if trace.flaw is not None:
        origin["flaw"] = trace.flaw
    table = pyarrow.table(
        {name: _arrow(values) for name, values in trace.columns().items()},
        metadata={"bbrgym": json.dumps(origin)},
    )
    pyarrow.parquet.write_table(table, path, compression="zstd")


def _arrow(values: npt.ArrayLike) -> Any:
    """Return strings or numbers as Arrow's, with null for NaN.

    `pyarrow.array` would import pandas, which costs a worker of a benchmark more time than dozens of short runs.
    """
    import pyarrow

    if isinstance(values, list):
        texts = [str(value).encode() for value in values]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        return pyarrow.StringArray.from_buffers(len(texts), pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(texts)))
    numbers = np.ascontiguousarray(values)
    is_known = pyarrow.py_buffer(np.packbits(~np.isnan(numbers), bitorder="little"))
    kind = pyarrow.from_numpy_dtype(numbers.dtype)
    return pyarrow.Array.from_buffers(kind, len(numbers), [is_known, pyarrow.py_buffer(numbers)])


def load_trace(path: Path) -> Trace:
    """Read a file of `save_trace`; columns that the file lacks are NaN.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not a trace.
    """
    with optional("a trace file"):
        import pyarrow.parquet

    with path.open("rb") as file:  # which may be on storage that is addressed by URL
        table = pyarrow.parquet.read_table(file)
    origin = json.loads((table.schema.metadata or {}).get(b"bbrgym", b"null"))
    if origin is None:
        raise ValueError(f"{path} is not a trace: it was not written by save_trace")
    origin = check_object(origin, f"'{path}': its metadata", scenario=dict, seed=int, engine=str, step_ms=int | float)
    with known_units():
        scenario = Scenario.from_dict(origin.pop("scenario"))
    if table.num_rows % len(scenario.flows) or not table.num_rows:
        raise ValueError(f"'{path}' has {table.num_rows} rows, but its scenario has {len(scenario.flows)} flows")
    steps, flows = table.num_rows // len(scenario.flows), len(scenario.flows)

    def read(names: Iterable[str]) -> npt.NDArray[np.float64]:
        """Return columns of the table, shape (steps, flows, names)."""
        known = set(table.column_names)
        missing = np.full(table.num_rows, np.nan)
        columns = [table[name].to_numpy() if name in known else missing for name in names]
        return np.stack(columns, axis=1).astype(np.float64, order="C").reshape(steps, flows, -1)

    return Trace(
        scenario=scenario,
        time_s=read(["time_s"])[:, 0, 0],
        flows=read(FLOW_COLUMNS),
        link=read(f"link_{name}" for name in LINK_COLUMNS)[:, 0],
        seed=origin["seed"],
        engine=origin["engine"],
        step_ms=origin["step_ms"],
        timing=origin.get("timing") or {},
        flaw=origin.get("flaw"),
    )

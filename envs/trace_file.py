"""Traces as Parquet files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Trace


def save_trace(trace: Trace, path: Path) -> None:
    """Write `trace.rows` as Parquet, with the scenario, seed, engine and step in the file's metadata."""
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
    """Read a file of `save_trace`; columns that the file lacks are NaN.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not a trace.
    """
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    origin = json.loads((table.schema.metadata or {}).get(b"bbrgym", b"null"))
    if origin is None:
        raise ValueError(f"{path} is not a trace: it was not written by save_trace")
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

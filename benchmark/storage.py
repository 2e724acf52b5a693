"""Files of a benchmark: the metrics of a run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from bbrgym.envs.trace_file import load_trace as load_trace
from bbrgym.envs.trace_file import save_trace as save_trace
from bbrgym.files import replace_file as replace_file
from bbrgym.files import write_json as write_json


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

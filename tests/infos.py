"""Infos of different environments in one form, to compare them."""

from __future__ import annotations

from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """With the records of vectorised environments as dicts, in the form of single environments and of Gymnasium."""
    if isinstance(value, np.void):
        return {name: float(value[name]) for name in value.dtype.names or () if not np.isnan(value[name])}
    if isinstance(value, np.ndarray) and value.dtype.names is not None:
        columns = {name: value[name] for name in value.dtype.names if not np.isnan(value[name]).all()}
        return {name: np.nan_to_num(column) for name, column in columns.items()} | {
            f"_{name}": ~np.isnan(column) for name, column in columns.items()
        }
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    return type(value)(plain(entry) for entry in value) if isinstance(value, list | tuple) else value

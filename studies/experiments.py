"""Compose the experiments of conf/experiment, and those of the studies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from bbrgym.overrides import value_of

STAND_INS: Final = {"bbr-stock": "bbr", "cubic-stock": "cubic", "newreno-stock": "newreno"}
"""Algorithms that only ns-3 has, and this project's algorithms that replace them in other engines."""


def compose_experiment(experiment: str, overrides: Sequence[str] = (), folder: Path | None = None) -> dict[str, Any]:
    """Return the whole plain configuration of an experiment."""
    path = [] if folder is None else [f"hydra.searchpath=[{value_of(f'file://{folder}')}]"]
    with initialize_config_module("bbrgym.conf", version_base="1.3"):
        config = compose("config", overrides=[*path, f"experiment={experiment}", *overrides])
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}

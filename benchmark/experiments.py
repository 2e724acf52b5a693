"""The configurations that conf/experiment describes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any


def compose_experiment(experiment: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The whole plain configuration of an experiment.

    Args:
        experiment: its name in conf/experiment, as `paper/acw-jain`.
        overrides: of Hydra.

    Raises:
        HydraException: there is no such experiment, or an override is not possible.
    """
    from hydra import compose, initialize_config_module
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    # There is one Hydra a process. Where a command runs in it, it has the groups of its --config-dir, too.
    is_there = GlobalHydra().is_initialized()
    with nullcontext() if is_there else initialize_config_module("bbrgym.conf", version_base="1.3"):
        config = compose("config", overrides=[f"experiment={experiment}", *overrides])
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}

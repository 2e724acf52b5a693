"""Compose the experiments of conf/experiment outside of Hydra's own command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from bbrgym.baselines import registry
from bbrgym.envs.engine import EngineDescription, describe_engine
from bbrgym.overrides import value_of


def compose_experiment(experiment: str, overrides: Sequence[str] = (), folder: Path | None = None) -> dict[str, Any]:
    """Return the whole plain configuration of an experiment.

    Args:
        experiment: its name in conf/experiment, or in `folder`.
        overrides: Hydra overrides.
        folder: a folder with more configuration files.
    """
    path = [] if folder is None else [f"hydra.searchpath=[{value_of(f'file://{folder}')}]"]
    with initialize_config_module("bbrgym.conf", version_base="1.3"):
        config = compose("config", overrides=[*path, f"experiment={experiment}", *overrides])
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def fit_to_engine(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a benchmark's configuration without algorithms of ns-3 that its engine lacks, and what was changed.

    In scenarios, our algorithms of the same kind replace them (`registry.COUNTERPARTS`). A competitor that is one of
    them is left out: it would be another competitor.
    """
    engine = describe_engine(**config["engine"])
    changes: dict[str, None] = {}
    scenarios = {
        name: {**scenario, "flows": [_replaced(flow, engine, changes) for flow in scenario.get("flows", ())]}
        for name, scenario in config["scenarios"].items()
    }
    competitors = []
    for entry in config["competitors"]:
        algorithm = entry if isinstance(entry, str) else entry.get("algorithm")
        if algorithm in registry.NS3_COMPARATORS and algorithm not in engine.comparators:
            changes[f"without {algorithm}, which only ns-3 has"] = None
        else:
            competitors.append(entry)
    return {**config, "scenarios": scenarios, "competitors": competitors}, list(changes)


def _replaced(flow: Mapping[str, Any], engine: EngineDescription, changes: dict[str, None]) -> dict[str, Any]:
    algorithm = str(flow.get("algorithm"))
    if algorithm not in registry.NS3_COMPARATORS or algorithm in engine.comparators:
        return dict(flow)
    ours = registry.COUNTERPARTS[algorithm]
    changes[f"{ours} in the place of {algorithm}, which only ns-3 has"] = None
    return {**flow, "algorithm": ours}

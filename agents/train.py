"""Training: an agent learns in the environment of a configuration, and can resume wherever it was stopped."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bbrgym.agents.checkpoint_names import saved_steps
from bbrgym.agents.config import (
    ALGORITHMS,
    EXPERIMENT,
    CurriculumConfig,
    DistilConfig,
    PPOConfig,
    SearchConfig,
    TrainConfig,
)
from bbrgym.agents.curriculum import Breaks
from bbrgym.agents.tracking import TrackingConfig, read_run
from bbrgym.agents.yardsticks import Measure, Yardstick
from bbrgym.checks import check_integer, check_name, read_record
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.extras import require
from bbrgym.files import check_folder
from bbrgym.overrides import command


@dataclass(frozen=True)
class TrainResult:
    """The outcome of a training.

    Attributes:
        directory: the run's folder, for `bbrgym.agents.policy.load_agent`.
        steps: decisions learned from, of all flows and resumed parts together.
        score: of the best evaluation since learning began, the mean reward per step or what the learner maximises
            instead (`bbrgym.agents.callbacks.Learner.objective`); NaN if there was none.
        is_complete: whether it ended by itself or by `total_steps`, and not by the time limit.
        yardsticks: what is reached without training, if it was measured.
    """

    directory: Path
    steps: int
    score: float
    is_complete: bool
    yardsticks: tuple[Yardstick, ...] = ()


def check_training(config: Mapping[str, Any], directory: Path | None = None) -> None:
    """Raise what `train` would raise before it writes anything.

    Args:
        config: as for `train`.
        directory: the run's folder. None is one job of many: then the learner's arguments are not tried, which loads
            torch.

    Raises:
        ValueError: a bad configuration, or the folder has a training or cannot be written.
        ModuleNotFoundError: the extra `train` is not installed.
    """
    spec, training = _read(config)
    if directory is None:
        return
    _check_folder(directory)
    from bbrgym.agents.training_loop import check_learner

    check_learner(config, spec, training)


def train(
    config: Mapping[str, Any],
    directory: Path,
    console: Console | None = None,
    measure: Measure | None = None,
    breaks: Breaks | None = None,
) -> TrainResult:
    """Train an agent. Everything that happens follows from the configuration, except for a limit in minutes.

    The directory then has

        best/, final/           the agent of the best evaluation since learning began, and the last one (`load_agent`)
        checkpoints/            the last two checkpoints, for `resume`
        metrics.jsonl, run.json the log (`bbrgym.agents.tracking`)
        training_curve.png      the score of `best` and the reward over steps, with yardsticks if there is a `measure`
        training_scenarios.json, evaluation_scenarios.json  the training distribution, and the evaluation episodes

    When an engine fails, a warning is logged, its episode is truncated, and training continues with a new one, up to
    `train.engine_failures` times. An engine that fails five times without a step between costs the episodes of all.

    At every checkpoint all random generators are seeded again from the seed and the number of steps, and new episodes
    begin. So a training that was killed or interrupted and resumed logs exactly the same metrics, and ends with the
    same weights, as one that ran through: it continues from its last checkpoint, and what was logged after that leaves
    metrics.jsonl. If the folder has a training with the same configuration that ended before its first checkpoint, that
    one starts again; one with another configuration is replaced. Both begin with an empty metrics.jsonl.

    Args:
        config: plain types, with the keys of `EpisodeSpec.from_config` and `agent`, `train`, `curriculum`, `tracking`,
            `seed`;
            `composition` has the choices and overrides of a command, for the run's name.
        directory: the run's folder.
        console: shows progress; None is standard output.
        measure: measures the yardsticks of the environment, as `bbrgym.benchmark.yardsticks.measure_yardsticks` does.
        breaks: breaks the agent, for a curriculum, as `bbrgym.benchmark.breaking.curriculum.Breaker` does.

    Raises:
        ValueError: a bad configuration, in which case nothing was written; or the folder cannot be written, has a
            training with checkpoints, or another process is training in it.
        ModuleNotFoundError: the extra `train` is not installed.
        EngineError: engines failed too often. A checkpoint was saved, and the run is marked as failed.
    """
    record = _check_folder(directory)
    return _train(
        config, directory, console or Console(), is_resumed=is_run_of(record, config), measure=measure, breaks=breaks
    )


def resume(
    directory: Path,
    changes: Mapping[str, Any] | None = None,
    console: Console | None = None,
    config: Mapping[str, Any] | None = None,
    measure: Measure | None = None,
    breaks: Breaks | None = None,
) -> TrainResult:
    """Resume a training that was stopped or killed, or extend one that is complete.

    One that was killed before its first checkpoint starts again.

    Args:
        directory: the training's folder.
        changes: of its configuration, `{"train.total_steps": 500000}`; only keys that begin with `train.`.
        console: shows progress; None is standard output.
        config: the configuration of a training that was killed before it wrote run.json; else that of run.json counts.
        measure: as for `train`.
        breaks: as for `train`.

    Raises:
        ValueError: there is nothing to resume, a change is not allowed, or the folder cannot be written.
        EngineError: an engine failed, as in `train`.
    """
    record = read_run(directory)
    if record is not None and record.get("experiment") == EXPERIMENT:
        config = record["params"]
    elif record is not None or config is None:
        raise ValueError(f"'{directory}' holds no training: it has no run.json of one")
    config = copy.deepcopy(dict(config))
    _check_groups(config)
    config["train"] = {**(config.get("train") or {}), "resume": None}
    for name, value in (changes or {}).items():
        group, _, key = name.partition(".")
        if group != "train" or not key:
            raise ValueError(f"{name} cannot change in a resumed training: only train.… can")
        config["train"][key] = value
    check_folder(directory, "make it writable, or resume a copy of it")
    return _train(config, directory, console or Console(), is_resumed=True, measure=measure, breaks=breaks)


def is_run_of(record: Mapping[str, Any] | None, config: Mapping[str, Any]) -> bool:
    """Return whether a run.json is that of a training with this configuration, wherever it is kept and tracked."""
    return record is not None and _settings(record["params"]) == _settings(config)


def _settings(params: Mapping[str, Any]) -> str:
    return json.dumps(
        {key: value for key, value in params.items() if key not in ("output_dir", "tracking", "composition")}
    )


def _check_folder(directory: Path) -> dict[str, Any] | None:
    """Return the record of a training in the folder that can begin again."""
    record = read_run(directory)
    if saved_steps(directory) or (record is not None and record["status"] == "FINISHED"):
        raise ValueError(
            f"'{directory}' already holds a training: resume it ("
            f"{command('bbrgym train', {'train.resume': directory})}) or use another folder"
        )
    check_folder(directory, "choose another folder with output_dir=FOLDER")
    return record


def _read(config: Mapping[str, Any]) -> tuple[EpisodeSpec, TrainConfig]:
    """Check everything that can be wrong before torch is loaded or anything is written."""
    _check_groups(config)
    agent = config.get("agent") or {}
    algorithm = agent.get("algorithm")
    check_name("learning algorithm", algorithm, ALGORITHMS)
    assert isinstance(algorithm, str)
    require("training", *ALGORITHMS[algorithm], "filelock")
    spec = EpisodeSpec.from_config(config)
    training = read_record(TrainConfig, "train", config.get("train") or {})
    if algorithm == "ppo":
        read_record(PPOConfig, "agent 'ppo'", agent)
    if algorithm == "cma":
        read_record(SearchConfig, "agent 'cma'", agent).check_fits(spec)
    if algorithm == "distil":
        read_record(DistilConfig, "agent 'distil'", agent).check_fits(spec)
    if curriculum := config.get("curriculum"):
        read_record(CurriculumConfig, "curriculum", curriculum).check_fits(spec, algorithm)
    check_integer("seed", config.get("seed", 1), at_least=0, below=2**31)
    TrackingConfig.of(config.get("tracking"))
    return spec, training


def _check_groups(config: Mapping[str, Any]) -> None:
    for name in ("agent", "train", "curriculum"):
        if not isinstance(config.get(name), Mapping | None):
            raise ValueError(f"{name} must be a mapping, got {config[name]!r}")


def _train(
    config: Mapping[str, Any],
    directory: Path,
    console: Console,
    is_resumed: bool,
    measure: Measure | None,
    breaks: Breaks | None,
) -> TrainResult:
    spec, training = _read(config)
    from bbrgym.agents.training_loop import run_training

    steps, score, is_complete, yardsticks = run_training(
        config,
        spec,
        training=training,
        directory=directory,
        console=console,
        is_resumed=is_resumed,
        measure=measure,
        breaks=breaks,
    )
    return TrainResult(
        directory=directory,
        steps=steps,
        score=math.nan if score is None else score,
        is_complete=is_complete,
        yardsticks=tuple(yardsticks),
    )

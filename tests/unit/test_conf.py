"""Every configuration composes, and the code accepts it."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep
from omegaconf import OmegaConf
from pages import ROOT, commands

from bbrgym.agents.config import ALGORITHMS, DistilConfig, PPOConfig, SearchConfig
from bbrgym.agents.tracking import TrackingConfig
from bbrgym.agents.train import TrainConfig, check_training
from bbrgym.benchmark.plan import Benchmark
from bbrgym.cli import COMMANDS
from bbrgym.envs import scenario
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.fields import SCENARIO_FIELDS
from bbrgym.envs.linux import engine as linux_engine
from bbrgym.executors import EXECUTORS, ExecutorConfig

CONF = Path(str(resources.files("bbrgym.conf")))
CHOICES = {group.name: sorted(path.stem for path in group.glob("*.yaml")) for group in CONF.iterdir() if group.is_dir()}
GROUPS = sorted(CHOICES.keys() - {"experiment", "hydra"})
SMALL = "scenario=single"
"""Takes a tenth of the time that the default, the distribution for training, takes to compose."""


pytestmark = pytest.mark.filterwarnings("error:.*If it is in")
"""Values that look like another unit (bbrgym.envs.scenario)."""


@pytest.fixture(autouse=True)
def _composing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(scenario, "_warned", set())
    with initialize_config_module("bbrgym.conf", version_base="1.3"):
        yield


@functools.cache
def plain(*overrides: str, name: str = "config") -> dict[str, Any]:
    config = OmegaConf.to_container(compose(name, overrides=list(overrides)), resolve=True)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


@pytest.mark.parametrize(
    "choices",
    list(
        itertools.zip_longest(*([f"{group}={choice}" for choice in CHOICES[group]] for group in GROUPS))
    ),  # in few composes
    ids=lambda choices: ",".join(filter(None, choices)),
)
def test_every_choice_composes_and_is_accepted(choices: tuple[str | None, ...]) -> None:
    config = plain(*filter(None, choices))
    assert EpisodeSpec.from_config(config).distribution.agents >= 1
    TrainConfig(**config["train"])
    TrackingConfig.of(config["tracking"])


@pytest.mark.parametrize("experiment", CHOICES["experiment"])
def test_every_experiment_composes_and_is_accepted(experiment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux_engine, "linux_controls", lambda: ("reno", "cubic", "bbr"))  # not every kernel has all
    text = (CONF / "experiment" / f"{experiment}.yaml").read_text()
    has_scenario = re.search(r"^\s*(- override /)?scenario:", text, re.MULTILINE)
    config = plain(f"experiment={experiment}", *(() if has_scenario else (SMALL,)))
    assert config["name"] == experiment
    if config["benchmark"]["scenarios"] or config["benchmark"]["suites"]:  # else it only trains
        name = f"{experiment}/{config['competitor']}" if "competitor" in config else experiment
        benchmark = Benchmark.from_dict(config["benchmark"])
        assert benchmark.name == name
        # They would measure how long a flow stands still (docs/scenarios.md).
        by_packets = [name for name, one in benchmark.scenarios.items() if one.loss_burst_packets is not None]
        assert not by_packets
    EpisodeSpec.from_config(config)
    TrainConfig(**config["train"])
    if "/agent:" in text:  # which has no setting of another learner
        check_training(config)


@pytest.mark.parametrize("experiment", ["friendliness", "rtt_fairness", "traces"])
def test_an_experiment_for_first_comparisons_has_the_default_seeds(experiment: str) -> None:
    """So it has enough for a claim in the engine native, and few in ns-3."""
    assert plain(f"experiment={experiment}", SMALL)["benchmark"]["seeds"] is None


def test_the_commands_of_the_pages_compose() -> None:
    together: dict[tuple[str | None, ...], dict[str, str]] = {}  # in few composes: their agents have other settings
    for _, (command, *words) in commands():
        if not COMMANDS[command].groups:
            continue
        words = [word for word in words if "=" in word and word[:5] != "hydra" and "NAME" not in word]
        overrides = dict(one_job(word) for word in words)
        if overrides.keys() != {"experiment"}:  # every experiment composes: above
            config = "evaluate" if command == "evaluate" else "config"
            group = (config, overrides.get("experiment"), overrides.get("agent"))
            together.setdefault(group, {}).update(overrides)
    assert len(together) > 2
    for (config, *_), overrides in together.items():
        compose(str(config), list(overrides.values()))


def one_job(override: str) -> tuple[str, str]:
    """Return the key of an override, and the override with the first value that a sweep gives it."""
    parsed = OverridesParser.create().parse_override(override)
    if not parsed.is_sweep_override():
        return parsed.key_or_group, override
    value = parsed.value()
    first = value.start if isinstance(value, IntervalSweep) else next(parsed.sweep_string_iterator())
    return parsed.key_or_group, f"{parsed.get_key_element()}={first}"


def test_the_package_has_the_configuration() -> None:
    assert CONF.resolve() == (ROOT / "conf").resolve()
    assert (CONF / "__init__.py").is_file()  # pkg:// needs it


def test_keys_of_sac_are_arguments_of_the_learner() -> None:
    from bbrgym.agents.sac import ARGUMENTS

    assert set(plain("agent=sac", SMALL)["agent"]) <= {"algorithm", *ARGUMENTS}


def test_defaults_are_those_of_the_code() -> None:
    config = plain("agent=sac", SMALL)
    assert TrainConfig(**config["train"]) == TrainConfig()
    assert set(config["train"]) == {f.name for f in dataclasses.fields(TrainConfig)}
    assert set(config["tracking"]) == {f.name for f in dataclasses.fields(TrackingConfig)}


def test_all_agents_have_their_learner() -> None:
    assert set(CHOICES["agent"]) == set(ALGORITHMS)


@pytest.mark.parametrize(("algorithm", "config"), [("ppo", PPOConfig), ("cma", SearchConfig), ("distil", DistilConfig)])
def test_defaults_of_a_learner_are_those_of_the_code(
    algorithm: str, config: type[PPOConfig | SearchConfig | DistilConfig]
) -> None:
    agent = plain(f"agent={algorithm}", SMALL)["agent"]
    assert config(**agent) == config()
    assert set(agent) == {f.name for f in dataclasses.fields(config)}


@pytest.mark.parametrize("path", sorted((CONF / "benchmark" / "executor").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_file_of_an_executor_has_its_defaults(path: Path) -> None:
    plain: Any = OmegaConf.to_container(OmegaConf.load(path))
    assert ExecutorConfig.of(plain) == EXECUTORS[path.stem]()


@pytest.mark.parametrize("path", sorted((CONF / "hydra" / "launcher").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_file_of_a_launcher_differs_from_its_executor_in_what_a_sweep_needs(path: Path) -> None:
    plain: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    own = ("_target_", "_convert_", "_self_", "defaults", "retries", "resume")
    executor = {name: value for name, value in plain.items() if name not in own}
    if "name" in executor:
        default = EXECUTORS[executor["name"]]().to_dict()
        changed = {name for name, value in executor.items() if default[name] != value}
        assert changed <= {"folder", "parameters"}


def test_the_plain_fields_are_all_of_a_scenario_with_their_defaults() -> None:
    given: Any = OmegaConf.to_container(OmegaConf.load(CONF / "scenario" / "fields" / "plain.yaml"))
    own = {"buffer_bdp": 1.0, "duration_s": 20.0, "rate_trace": None, "workload": None}
    expected = {
        name: field.default for name, field in SCENARIO_FIELDS.items() if name not in ("flows", "rate_schedule")
    }
    assert given == expected | own

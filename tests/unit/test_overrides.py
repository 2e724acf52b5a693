"""Overrides: printed ones can be pasted, and the error about a mistaken one says what was meant."""

import dataclasses
import shlex
from collections.abc import Iterator

import pytest
from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from bbrgym.agents.config import CurriculumConfig, DistilConfig, PPOConfig, SearchConfig, TrainConfig
from bbrgym.conf import defaults
from bbrgym.envs.named import named_scenario
from bbrgym.overrides import command, explaining, read_environment, read_values, store_papers


@pytest.mark.parametrize(
    "text",
    [
        "runs/train/2026-01-31_12-00-00_ppo-1",
        "a b",
        "a,b",
        "(a)",
        "a=b",
        "it's",
        'say "so"',
        "$HOME",
        "naïve ≤",
        "${oc.env:HOME}",
        "a\\${b}",
        "",
        " ",
        "1",
        "null",
        "true",
        "[1]",
        "{a: 1}",
        "a\\",
        "\\'",
        '\\"',
        "a\nb",
        "#1?*&!~`|;<>:@%",
        "choice(a,b)",
        "glob(*)",
        "1e3",
        "...",
        "~/x",
        "-m",
    ],
)
def test_a_printed_override_means_its_text(text: str) -> None:
    words = shlex.split(command("bbrgym evaluate", {"agent_path": text}))
    assert words[:-1] == ["bbrgym", "evaluate"]
    override = OverridesParser.create().parse_override(words[-1])
    assert not override.is_sweep_override()
    config = OmegaConf.create({"agent_path": "x"})
    OmegaConf.update(config, override.key_or_group, override.value())
    assert OmegaConf.to_container(config, resolve=True) == {"agent_path": text}


@pytest.fixture(scope="module")
def _composing() -> Iterator[None]:
    with initialize_config_module("bbrgym.conf", version_base="1.3"):
        yield


def explained(*overrides: str, name: str = "config") -> str:
    with pytest.raises(ValueError) as caught, explaining(name, overrides):  # noqa: PT011
        OmegaConf.to_container(compose(name, list(overrides)), resolve=True)
    return str(caught.value)


@pytest.mark.usefixtures("_composing")
def test_a_mistaken_key_or_choice_is_answered_with_the_right_one() -> None:
    single = "scenario=single"  # the default takes long to compose
    for override, start in {
        "train.totl_steps=1": "unknown key 'totl_steps' in train (did you mean train.total_steps?); known: total_steps",
        "total_steps=1": "unknown key 'total_steps' (did you mean train.total_steps?)",
        "agnt=sac": "unknown key 'agnt' (did you mean agent?)",
        "agent=sca": "unknown agent 'sca' (did you mean 'sac'?); known: cma, distil, ppo, sac",
        "experiment=paper/acw-jian": "unknown experiment 'paper/acw-jian' (did you mean 'paper/acw-jain'?)",
        "hydra/luncher=local": "unknown group 'hydra/luncher' (did you mean 'hydra/launcher'?)",
        "agent.quality=1": "unknown key 'quality' in agent; known: algorithm, ",
        "agent.lr=1": "unknown key 'lr' in agent (did you mean agent.learning_rate?); known: algorithm, ",
        "agent.size=1": "unknown key 'size' in agent (did you mean agent.batch_size?); known: algorithm, ",
        "agent=PPO": "unknown agent 'PPO' (did you mean 'ppo'?)",
        "scenario=Parking-Lot": "unknown scenario 'Parking-Lot' (did you mean 'parking_lot'?)",
        "experiment=RTT-FAIRNESS": "unknown experiment 'RTT-FAIRNESS' (did you mean 'rtt_fairness'?)",
        "scenario.RATE_MBPS=3": "unknown key 'RATE_MBPS' in scenario (did you mean scenario.rate_mbps?)",
        "scenario.flows.0.RTT-ms=3": "unknown key 'RTT-ms' in scenario.flows.0 (did you mean scenario.flows.0.rtt_ms?)",
        "Experiment=demo": "unknown key 'Experiment' (did you mean experiment?)",
    }.items():
        assert explained(single, override).startswith(start)
    adding = "; to add a key that is not in its file: +"
    assert explained(single, "agent=sac", "agent.quality=1").endswith(f"{adding}agent.quality=1")
    assert "(did you mean agent.learning_rate?)" in explained(single, "agent=sac", "agent.lr=1")
    known = explained("agent_pth=x", name="evaluate").partition("known: ")[2].split(", ")
    assert {"agent_path", "scenario", "engine"} <= set(known)
    assert "agent" not in known
    assert "+" not in explained("observation.history=3", name="evaluate")
    papers = explained("scenario=paper/acx")
    assert "(did you mean 'paper/acw'?)" in papers
    assert "fields" not in papers


@pytest.mark.usefixtures("_composing")
@pytest.mark.parametrize(
    ("group", "choice", "kind"),
    [
        ("agent", "ppo", PPOConfig),
        ("agent", "cma", SearchConfig),
        ("agent", "distil", DistilConfig),
        ("train", "default", TrainConfig),
        ("curriculum", "break", CurriculumConfig),
    ],
)
def test_a_key_cannot_be_added_where_the_file_has_all_of_them(group: str, choice: str, kind: type) -> None:
    given = ("scenario=single", f"{group}={choice}")
    assert "+" not in explained(*given, f"{group}.nothing=1")
    assert set(compose("config", list(given))[group]) == {field.name for field in dataclasses.fields(kind)}


@pytest.mark.usefixtures("_composing")
def test_a_paper_is_a_scenario_as_in_python() -> None:
    store_papers(["scenario=paper/acw"])
    composed = OmegaConf.to_container(compose("config", ["scenario=paper/acw"]).scenario, resolve=True)
    assert composed == named_scenario("paper/acw")


@pytest.mark.usefixtures("_composing")
def test_a_flow_can_be_overridden_or_the_error_says_how() -> None:
    for scenario in ("duel", "train"):  # with a list of flows, and with a choice of lists
        override = "scenario.flows.0.rtt_ms=10"
        flows = compose("config", [f"scenario={scenario}"]).scenario.flows
        if OmegaConf.is_list(flows):
            assert compose("config", [f"scenario={scenario}", override]).scenario.flows[0].rtt_ms == 10
        else:
            message = explained(f"scenario={scenario}", override)
            advice = shlex.split(message.partition("give all flows, ")[2].partition(", or choose")[0])
            assert compose("config", [f"scenario={scenario}", *advice]).scenario.flows[0].rtt_ms == 10
    assert "scenario.flows has the entries 0 to 1, got '2'" in explained("scenario=duel", "scenario.flows.2.rtt_ms=10")
    assert "numbers 0, 1, …, got 'x'" in explained("scenario=duel", "scenario.flows.x.rtt_ms=10")
    missing = explained("scenario=duel", "scenario.flows.0.start_s=1")
    advice = missing.partition("add it with ")[2]
    assert compose("config", ["scenario=duel", advice]).scenario.flows[0].start_s == 1


@pytest.mark.usefixtures("_composing")
@pytest.mark.parametrize("override", ["flows=[{rtt_ms: 10}]", "rate_mbps={uniform: [1, 2]}"])
def test_a_value_that_hydra_cannot_merge_can_be_replaced(override: str) -> None:
    message = explained(f"scenario.{override}")
    scenario = compose("config", shlex.split(message.partition("; to replace it: ")[2])).scenario
    assert scenario.flows == [{"rtt_ms": 10}] or scenario.rate_mbps == {"uniform": [1, 2]}


@pytest.mark.usefixtures("_composing")
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("~train.seed", "~train.seed deletes nothing: the configuration has no 'train.seed'"),
        ("~agnt", "~agnt deletes nothing: the configuration has no 'agnt'"),
        ("~seed", "~seed deletes seed, which "),
        ("~engine", "~engine deletes engine, which benchmark.engine needs: leave ~engine out"),
        ("~agent.algorithm", "~agent.algorithm deletes agent.algorithm, which "),
        ("~scenario.flows.0", "~scenario.flows.0: an entry of a list cannot be deleted; to have others, "),
        ("~hydra.run.dir", "~hydra.run.dir: a setting of Hydra cannot be deleted; give it a value: hydra.run.dir=…"),
        ("seed=${oc.env:NO_SUCH}", "seed=${oc.env:NO_SUCH}: there is no environment variable 'NO_SUCH'"),
        ("seed=${agnt.seed}", "seed=${agnt.seed}: the configuration has no 'agnt.seed'"),
        ("seed=${nothing:1}", "Unsupported interpolation type nothing"),
        ("seed=${seed}", "Recursive interpolation detected"),
    ],
)
def test_a_deletion_or_an_interpolation_that_does_not_fit_is_named(override: str, message: str) -> None:
    text = explained("scenario=duel", override)
    assert message in text
    assert "\n" not in text


@pytest.mark.usefixtures("_composing")
@pytest.mark.parametrize("group", ["scenario", "agent", "train"])
def test_a_setting_of_a_group_that_is_deleted_is_not_called_unknown(group: str) -> None:
    assert explained(f"~{group}", f"{group}.x=1") == f"{group}.x=1: ~{group} deletes {group}: leave ~{group} out"


@pytest.mark.usefixtures("_composing")
def test_every_group_can_be_deleted_or_the_error_says_what_needs_it() -> None:
    messages = {}
    for group in defaults("config"):
        try:
            with explaining("config", [f"~{group}"]):
                OmegaConf.to_container(compose("config", ["scenario=single", f"~{group}"]), resolve=True)
        except ValueError as error:
            messages[group] = str(error)
    assert {"agent", "engine", "tracking"} <= messages.keys()
    assert all(message.startswith(f"~{group} deletes {group}") for group, message in messages.items())


@pytest.mark.usefixtures("_composing")
@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("seed", "7", 7),
        ("train.total_steps", "1e6", 1e6),
        ("agent.gamma", "0.9", 0.9),
        ("flag", "false", False),
        ("train.max_minutes", "null", None),
        ("agent.net_arch", "[8,8]", [8, 8]),
        ("scenario.flows.0.rtt_ms", "40", 40),
        ("name", "7", "7"),
        ("tracking.uri", "sqlite:///a b.db", "sqlite:///a b.db"),
        ("output_dir", "1234567e8", "1234567e8"),
        ("engine.name", "native", "native"),
        ("agent.fitness", "a,b", "a,b"),
    ],
)
def test_an_environment_variable_is_read_as_an_override(
    key: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VALUE", text)
    config = compose("config", ["scenario=duel", f"++{key}=${{oc.env:VALUE}}"])
    read_environment(config)
    assert OmegaConf.select(config, key) == value
    assert read_values([f"{key}=${{oc.env:VALUE}}"]) == {key: value}


def test_a_text_that_has_an_environment_variable_in_it_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALUE", "1e3")
    config = OmegaConf.create({"folder": "runs/${oc.env:VALUE}", "number": "${oc.env:VALUE}"})
    read_environment(config)
    assert OmegaConf.to_container(config, resolve=True) == {"folder": "runs/1e3", "number": 1000}

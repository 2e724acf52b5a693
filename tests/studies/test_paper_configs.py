"""The experiments of the papers and the ablations compose, are accepted, and have what they promise."""

import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

from bbrgym import Scenario
from bbrgym.baselines import registry
from bbrgym.benchmark.metrics import MEASURED
from bbrgym.benchmark.paper_figures import paper_figure
from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.published import CLAIMS, Paper, PaperFigure, load_paper

PAPER = sorted(path.stem for path in CLAIMS.glob("paper/*.yaml"))
ABLATION = sorted(path.stem for path in CLAIMS.glob("ablation/*.yaml"))
ALL = [*(f"paper/{name}" for name in PAPER), *(f"ablation/{name}" for name in ABLATION)]
PRESETS = ["quick", "full"]
PAPERS_KERNEL = {"pacing_margin": 0.0, "extra_acked_gain": 0.0}


@cache
def composed(experiment: str) -> DictConfig:
    with initialize_config_module("bbrgym.conf", version_base="1.3"):
        return compose("config", overrides=[f"experiment={experiment}"])


@cache
def config_of(experiment: str, preset: str = "quick") -> dict[str, Any]:
    config = composed(experiment)
    config.preset = preset
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))


@cache
def benchmark_of(experiment: str, preset: str = "quick") -> Benchmark:
    return Benchmark.from_dict(config_of(experiment, preset)["benchmark"])


@cache
def paper_of(experiment: str) -> Paper:
    benchmark = benchmark_of(experiment)
    return load_paper(experiment, benchmark.scenarios, [competitor.name for competitor in benchmark.competitors])


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("experiment", ALL)
def test_every_experiment_composes_and_is_accepted(experiment: str, preset: str) -> None:
    group, _, name = experiment.partition("/")
    assert config_of(experiment, preset)["name"] == f"{group}-{preset}/{name}"
    benchmark = benchmark_of(experiment, preset)
    assert Benchmark.from_dict(benchmark.to_dict()) == benchmark


@pytest.mark.parametrize("experiment", ALL)
def test_every_experiment_has_what_its_paper_published(experiment: str) -> None:
    paper = paper_of(experiment)
    assert all((paper.published, paper.figure, paper.where, paper.stated, paper.inferred))
    assert all(" " in entry.reason for entry in paper.published if entry.reason)  # else no name in reasons.yaml


def made_up_results(scenarios: Mapping[str, Scenario], competitors: Sequence[str]) -> pd.DataFrame:
    random = np.random.default_rng(7)
    rows = []
    for seed, (name, scenario), competitor in itertools.product((1, 2), scenarios.items(), competitors):
        run = dict.fromkeys(MEASURED, 1.0) | {"link_jain": 0.5 + 0.5 * random.random(), "convergence_s": 2.0}
        names = {"scenario": name, "competitor": competitor, "seed": seed, "key": "-", "trace_hash": str(seed)}
        for index, flow in enumerate(scenario.flows):
            of_flow = {"flow": index, "rtt_ms": flow.rtt_ms, "algorithm": competitor}
            rows.append(run | of_flow | {"throughput_mbps": 9 + random.random()} | names)
    return pd.DataFrame(rows)


@pytest.mark.parametrize("experiment", ALL)
def test_every_figure_can_be_drawn(experiment: str) -> None:
    scenarios = benchmark_of(experiment).scenarios
    names = [competitor.name for competitor in benchmark_of(experiment).competitors][:2]
    figure = paper_of(experiment).figure
    assert figure is not None
    results = made_up_results(scenarios, names)
    shown = paper_figure(figure, results, scenarios, paper_of(experiment).published)
    assert all(axes.has_data() for axes in shown.axes if axes.get_visible())


def test_two_scenarios_are_never_one_point_of_a_figure() -> None:
    scenarios = {name: Scenario(loss=0.0, buffer_bdp=depth) for name, depth in (("deep", 5), ("shallow", 1))}
    figure = PaperFigure(title="Figure 1", y=("link_jain",), x="loss")
    with pytest.raises(ValueError, match=r"'deep' and 'shallow' at the same loss=0: give it a panel"):
        paper_figure(figure, made_up_results(scenarios, ["bbr"]), scenarios, ())


@pytest.mark.parametrize("experiment", ALL)
def test_seeds_and_warmup(experiment: str) -> None:
    quick, full = (config_of(experiment, preset)["benchmark"] for preset in PRESETS)
    repeats = 30 if experiment == "paper/acd-sim-7flows-1mbps" else 10
    assert full["seeds"] == list(range(1, repeats + 1))
    assert full["warmup"] == 0  # the papers average over whole runs
    assert len(quick["seeds"]) >= 3
    assert set(quick["seeds"]) <= set(full["seeds"])
    for name, scenario in quick["scenarios"].items():
        assert scenario["duration_s"] <= full["scenarios"][name]["duration_s"]
        if scenario["duration_s"] == full["scenarios"][name]["duration_s"]:
            assert quick["warmup"] == 0  # as long as the paper's: measured as the paper does


@pytest.mark.parametrize("experiment", [name for name in ALL if name != "ablation/bbr"])
def test_bbr_is_that_of_the_papers(experiment: str) -> None:
    competitors = config_of(experiment)["benchmark"]["competitors"]
    assert "bbr" not in competitors  # today's Linux, with its margin and its aggregation
    for competitor in competitors:
        if isinstance(competitor, dict) and competitor["algorithm"] == "bbr":
            assert competitor["parameters"] == PAPERS_KERNEL


@pytest.mark.parametrize("experiment", [name for name in ALL if name.startswith("ablation/")])
def test_an_ablation_changes_what_it_is_about(experiment: str) -> None:
    algorithm = experiment.removeprefix("ablation/")
    benchmark = benchmark_of(experiment)
    variants = [c for c in benchmark.competitors if c.algorithm == algorithm and c.parameters]
    assert algorithm in {c.name for c in benchmark.competitors if not c.parameters} or algorithm == "bbr"
    assert len(variants) >= 3
    defaults = registry.defaults(algorithm)
    for variant in variants:
        changed = {key for key, value in variant.parameters.items() if float(value) != defaults[key]}
        assert changed == set(variant.parameters)
    assert len({tuple(sorted(variant.parameters.items())) for variant in variants}) == len(variants)

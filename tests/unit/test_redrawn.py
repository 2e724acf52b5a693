"""Rates and RTTs that are drawn anew every ten seconds, and the suites that use them."""

import random
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from bbrgym.baselines import registry
from bbrgym.benchmark.plan import Benchmark
from bbrgym.envs import rate_trace, redrawn, rtt_trace


def test_the_draws_are_those_of_python_2_7() -> None:
    # The first numbers of the generator with seed 1 are 0.134… and 0.847….
    assert [round(random.Random(1).random(), 3), redrawn.rates(1, 300)[0], redrawn.rtts(1, 300)[0]] == [
        0.134,
        (0.0, 14.0),
        (0.0, 173.0),
    ]
    for seed in range(1, 51):
        rates, rtts = redrawn.rates(seed, 300), redrawn.rtts(seed, 300)
        assert [time for time, _ in rates] == [time for time, _ in rtts] == [10.0 * step for step in range(30)]
        assert all(1 <= rate <= 100 for _, rate in rates)
        assert all(20 <= rtt <= 200 for _, rtt in rtts)


def test_scenarios_have_them_as_traces() -> None:
    plain = {"synthetic": "redrawn", "seed": 7}
    assert rate_trace.from_config(plain, 300) == tuple(redrawn.rates(7, 300))
    schedule = rtt_trace.from_config(plain, 300)
    assert dict(schedule).items() <= dict(redrawn.rtts(7, 300)).items()
    with pytest.raises(ValueError, match="rate_trace must have no bin_ms beside redrawn"):
        rate_trace.from_config(plain | {"bin_ms": 100}, 300)
    with pytest.raises(ValueError, match="known: cellular, redrawn"):
        rate_trace.from_config({"synthetic": "drawn"}, 300)


@pytest.fixture(scope="module")
def benchmark_of_responsiveness() -> dict[str, Any]:
    with initialize_config_module("bbrgym.conf", version_base="1.3"):
        composed = OmegaConf.to_container(
            compose("config", ["experiment=responsiveness", "scenario=single"]), resolve=True
        )
    assert isinstance(composed, dict)
    return dict(composed["benchmark"])


def test_the_suites_are_for_every_controller_and_have_the_published_settings(
    benchmark_of_responsiveness: dict[str, Any],
) -> None:
    benchmark = Benchmark.from_dict(benchmark_of_responsiveness | {"competitors": ["all"]})
    assert {one.name for one in benchmark.competitors} == set(registry.controllers()) - {"agent", *registry.PROGRAMS}
    drawn = [benchmark.scenarios[name] for name in benchmark.suites["redrawn"].scenarios]
    assert [one.rate_schedule for one in drawn] == [tuple(redrawn.rates(seed, 300)) for seed in range(1, 51)]
    assert all(one.flows[0].rtt_schedule[0] == redrawn.rtts(seed, 300)[0] for seed, one in enumerate(drawn, 1))
    for suite in ("same-rtt", "different-rtts"):
        for name in benchmark.suites[suite].scenarios:
            scenario = benchmark.scenarios[name]
            first, second = scenario.flows
            assert scenario.duration_s == 4 * second.start_s == 2 * second.rtt_ms
            assert first.rtt_ms == (second.rtt_ms if suite == "same-rtt" else 20)

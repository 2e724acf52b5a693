"""Scenarios drawn from distributions, with values that people can read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from bbrgym.envs.distribution import Distribution
from bbrgym.envs.scenario import Scenario


def drawn_scenarios(draws: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return scenarios drawn from distributions, named `<name>-01` and so on; the seeds decide them.

    Args:
        draws: {name: {count, seed, scenario}}, where `scenario` is a distribution over scenarios.
    """
    scenarios = {}
    for name, draw in draws.items():
        distribution = Distribution.from_dict(draw["scenario"])
        generator = np.random.default_rng(draw["seed"])
        for count in range(1, draw["count"] + 1):
            scenarios[f"{name}-{count:02d}"] = rounded(distribution.sample(generator)).to_dict()
    return scenarios


def rounded(scenario: Scenario) -> Scenario:
    """Return the scenario with readable values: four significant digits, times to a tenth of a second."""

    def figures(value: float) -> float:
        return float(f"{value:.4g}")

    flows = tuple(
        dataclasses.replace(
            flow,
            rtt_ms=figures(flow.rtt_ms),
            start_s=round(flow.start_s, 1),
            stop_s=None if flow.stop_s is None else round(flow.stop_s, 1),
        )
        for flow in scenario.flows
    )
    return dataclasses.replace(
        scenario,
        rate_mbps=figures(scenario.rate_mbps),
        buffer_bdp=None if scenario.buffer_bdp is None else figures(scenario.buffer_bdp),
        loss=figures(scenario.loss),
        flows=flows,
    )

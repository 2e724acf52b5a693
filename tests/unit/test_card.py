"""The facts of a model card."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from policies import make_agent, networks

from bbrgym.agents.card import facts

STEPS_OF_100_MS: dict[str, Any] = {"env": {"step_ms": 100.0, "step_rtts": None}}


def test_each_fact_of_the_file_is_there() -> None:
    action = {"cwnd_gain": [0.5, 4.0], "pacing_gain": [0.75, 1.75], "cwnd_scale": "packets"}
    observation = {"features": ["log_bdp", "loss_rate"], "history": 2}
    reward = {"terms": {"alpha_fair": 1.0, "delay": 0.5, "loss": 1.0}}
    agent = make_agent(
        widths=(3,), lstm=(5,), observation=observation, action=action, output="tanh", reward=reward, **STEPS_OF_100_MS
    )
    agent.training = {
        **{"algorithm": "ppo", "steps": 8_000_000, "seed": 1234, "reward": -0.23898},
        **{"imported": None, "made_with": {"python": "3.11", "torch": "2.8"}, "licence": "MIT"},
    }
    found = facts(agent.stored)
    assert found["training distribution"].startswith("SHA-256 ")
    text = "; ".join(found.values())
    for fact in (
        *("ppo", "8000000", "1234", "-0.239", "python 3.11, torch 2.8", "MIT", "alpha_fair 1, delay 0.5, loss 1"),
        *("native", "log_bdp, loss_rate", "cwnd_gain 0.5 to 4", "100 ms", "LSTM 5, 3 tanh", "226 weights"),
        agent.content_hash,
    ):
        assert fact in text
    of_rtts = make_agent(env={"step_ms": None, "step_rtts": 1.5}, observation={"history": 1})
    assert facts(of_rtts.stored)["step"] == "1.5 min_rtt"
    assert facts(of_rtts.stored)["observation"].endswith(", is_probe_bw; of the last step")


@pytest.mark.parametrize("name", networks())
def test_only_another_distribution_has_another_hash(name: str) -> None:
    stored = networks()[name].stored
    other = dataclasses.replace(stored, spec={**stored.spec, "scenario": {**stored.spec["scenario"], "rate_mbps": 7.0}})
    again = dataclasses.replace(
        stored, spec={**stored.spec, "scenario": dict(reversed(stored.spec["scenario"].items()))}
    )
    later = dataclasses.replace(stored, spec={**stored.spec, "scenario": {**stored.spec["scenario"], "workload": None}})
    key = "training distribution"
    assert facts(other)[key] != facts(stored)[key] == facts(again)[key] == facts(later)[key]

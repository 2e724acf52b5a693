"""Agents as ONNX models: a runtime computes the same actions."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from policies import make_agent, networks

from bbrgym.agents.card import facts
from bbrgym.agents.export import write_onnx
from bbrgym.cli import main

SEED = 11


def session_of(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    "name", sorted(networks().keys() - {"saturated"})
)  # large weights magnify differences of rounding
@pytest.mark.parametrize("n", [1, 5])
def test_the_model_acts_like_the_agent(name: str, n: int, tmp_path: Path) -> None:
    agent = networks()[name]
    write_onnx(agent.stored, tmp_path / "agent.onnx")
    session = session_of(tmp_path / "agent.onnx")
    state = {
        f"{kind}.{i}": np.zeros((n, of_state.shape[1]), np.float32)
        for i, (_, of_state, _) in enumerate(agent.network.lstm)
        for kind in ("hidden", "cell")
    }
    names = ["actions", *(f"next_{name}" for name in state)]
    assert {entry.name for entry in session.get_inputs()} == {"observations", *state}
    assert {entry.name for entry in session.get_outputs()} == set(names)
    rng = np.random.default_rng(SEED)
    seen = []
    for _ in range(20):
        observations = rng.uniform(-2, 2, (n, agent.network.inputs)).astype(np.float32)
        actions, *after = session.run(names, {"observations": observations} | state)
        state = dict(zip(state, after, strict=True))
        assert actions.dtype == np.float32
        np.testing.assert_allclose(actions, agent.predict(observations), atol=1e-5)
        seen.append(actions)
    assert np.std(seen) > 0.05


def test_the_metadata_describe_observations_and_actions(tmp_path: Path) -> None:
    agent = make_agent(observation={"history": 2})
    agent.training = {"algorithm": "ppo", "seed": 3}
    write_onnx(agent.stored, tmp_path / "agent.onnx")
    session = session_of(tmp_path / "agent.onnx")
    (observations,) = session.get_inputs()
    assert observations.shape == ["N", agent.network.inputs]
    meta = session.get_modelmeta().custom_metadata_map
    assert meta.pop("content_hash") == agent.content_hash
    assert json.loads(meta.pop("card")) == facts(agent.stored)
    assert json.loads(meta.pop("training")) == {"algorithm": "ppo", "seed": 3}
    assert {group: json.loads(text) for group, text in meta.items()} == agent.spec.policy_config()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = make_agent(lstm=(4,))
    agent.save(tmp_path / "run" / "best")
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "a.onnx")]) == 0
    assert f"observations (N, {agent.network.inputs}) to actions (N, 2), with the states hidden.0 and cell.0" in (
        capsys.readouterr().out
    )
    session_of(tmp_path / "a.onnx")
    with pytest.raises(SystemExit, match="2"):
        main(["export", str(tmp_path)])
    assert "FILE" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "a.pb")]) == 1
    assert main(["export", str(tmp_path / "nowhere"), str(tmp_path / "b.onnx")]) == 1
    assert "there is no such folder" in capsys.readouterr().err


# The facts of a model card.

STEPS_OF_100_MS: dict[str, Any] = {"env": {"step_ms": 100.0, "step_rtts": None}}


def test_each_fact_of_the_file_is_there() -> None:
    action = {"cwnd_gain": [0.5, 4.0], "pacing_gain": [0.75, 1.75], "cwnd_scale": "packets"}
    observation = {"features": ["log_bdp", "loss_rate"], "history": 2}
    reward = {"terms": {"alpha_fair": 1.0, "delay": 0.5, "loss": 1.0}}
    agent = make_agent(
        widths=(3,), lstm=(5,), observation=observation, action=action, output="tanh", reward=reward, **STEPS_OF_100_MS
    )
    agent.training = {
        "algorithm": "ppo",
        "steps": 8_000_000,
        "seed": 1234,
        "reward": -0.23898,
        "imported": None,
        "made_with": {"python": "3.11", "torch": "2.8"},
        "licence": "MIT",
    }
    found = facts(agent.stored)
    assert found["training distribution"].startswith("SHA-256 ")
    text = "; ".join(found.values())
    for fact in (
        "ppo",
        "8000000",
        "1234",
        "-0.239",
        "python 3.11, torch 2.8",
        "MIT",
        "alpha_fair 1, delay 0.5, loss 1",
        "native",
        "log_bdp, loss_rate",
        "cwnd_gain 0.5 to 4",
        "100 ms",
        "LSTM 5, 3 tanh",
        "226 weights",
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

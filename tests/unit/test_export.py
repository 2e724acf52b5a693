"""Agents as ONNX models: a runtime computes the same actions."""

from __future__ import annotations

import json
from pathlib import Path

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
    assert {group: json.loads(text) for group, text in meta.items()} == {
        group: agent.spec.to_config()[group] for group in ("observation", "action", "env")
    }


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = make_agent(lstm=(4,))
    agent.save(tmp_path / "run" / "best")
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "a.onnx")]) == 0
    assert f"observations (N, {agent.network.inputs}) to actions (N, 2), with the states hidden.0 and cell.0" in (
        capsys.readouterr().out
    )
    session_of(tmp_path / "a.onnx")
    assert main(["export", str(tmp_path)]) == 1
    assert "give an agent" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "a.pb")]) == 1
    assert main(["export", str(tmp_path / "nowhere"), str(tmp_path / "b.onnx")]) == 1
    assert "there is no such folder" in capsys.readouterr().err

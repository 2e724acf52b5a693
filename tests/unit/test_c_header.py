"""Agents as C headers: what a C compiler makes of them decides as the controller `policy` does, to the last bit."""

import ctypes
import math
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from policies import make_agent, networks

from bbrgym import Flow, Scenario, simulate
from bbrgym._controllers import policy_start
from bbrgym.agents.c_header import write_c_header
from bbrgym.agents.card import facts
from bbrgym.agents.policy import Agent, load_agent
from bbrgym.baselines.policy_file import KERNEL_REFERENCE, REFERENCE
from bbrgym.baselines.registry import defaults
from bbrgym.cli import main
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.observation import FEATURES, PREFERENCE, History, tabulate

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-Wconversion", "-ffp-contract=off")
RUN = """
#include "{name}.h"
void {name}_run(const {name}_row *rows, int count, double *gains, float *observations) {{
  {name}_state state;
  {name}_reset(&state);
  for (int i = 0;; ++i) {{
    *gains++ = state.cwnd_gain;
    *gains++ = state.pacing_gain;
    memcpy(observations + i * {name}_history * {name}_features, state.observation, sizeof state.observation);
    if (i == count) break;
    {name}_step(&state, rows + i);
  }}
}}
"""

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler `cc`")


def agents() -> dict[str, Agent]:
    """An agent for each kind of network, of action and of observation, by a name in C."""
    found = {re.sub(r"\W+", "_", name): agent for name, agent in networks().items()}
    every = {"features": list(FEATURES), "history": 3}
    found["every_feature"] = make_agent(scale=0.05, observation=every, env={"step_ms": None, "step_rtts": 1.5})
    found["no_column"] = make_agent(observation={"features": ["log_cwnd_gain", "log_pacing_gain"]})
    found["overflow"] = make_agent(widths=(8, 8), activation="relu", scale=1e30)
    found["hostile"] = make_agent()
    found["hostile"].training = {"algorithm": "*/ #error $p ${p} \\ /* //", "seed": 3}
    found["reference"] = load_agent(REFERENCE)
    return found


class Compiled:
    """All of `agents()` as C headers in one library."""

    def __init__(self, folder: Path) -> None:
        self.agents, self.folder = agents(), folder
        for name, agent in self.agents.items():
            write_c_header(agent.stored, folder / f"{name}.h")
        self.source = folder / "policies.c"
        self.source.write_text("".join(RUN.format(name=name) for name in self.agents))
        library = folder / "policies.so"
        command = ["cc", "-std=c99", *STRICT, "-shared", "-fPIC", "-o", library, self.source, "-lm"]
        subprocess.run(command, check=True, timeout=60)
        self.functions = ctypes.CDLL(str(library))

    def run(
        self, name: str, rows: list[Mapping[str, float]]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32]]:
        """Return gains, (1 + rows, 2), and observations, (1 + rows, inputs), of the first decision and for each row."""
        (struct,) = re.findall(rf"typedef struct {{([^}}]*)}} {name}_row;", (self.folder / f"{name}.h").read_text())
        columns = re.findall(r"double (\w+);", struct)
        table = np.array([[row[column] for column in columns] for row in rows])
        gains = np.empty((1 + len(rows), 2))
        observations = np.empty((1 + len(rows), self.agents[name].network.inputs), np.float32)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (table, gains, observations)]
        self.functions[f"{name}_run"](pointers[0], len(rows), *pointers[1:])
        return gains, observations


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(tmp_path_factory.mktemp("c"))


@pytest.fixture(scope="module")
def rows() -> list[dict[str, float]]:
    """What a flow of a policy measured in a native run."""
    flows = (Flow("policy", rtt_ms=30, policy=str(KERNEL_REFERENCE)), Flow("cubic", rtt_ms=30, start_s=4))
    scenario = Scenario(rate_mbps=12, buffer_bdp=4, loss=0.001, duration_s=15, flows=flows)
    trace = simulate(scenario, engine="native", seed=1, step_ms=100)
    return [dict(zip(FLOW_COLUMNS, row.tolist(), strict=True)) for row in trace.flows[:, 0]]


def decide(agent: Agent, rows: list[dict[str, float]]) -> tuple[list[Any], list[Any]]:
    """Return the gains and observations of the first decision and for each row, by the code of every engine."""
    spec = agent.spec
    history = History(spec.observation, 1)
    agent.reset()
    gains = np.array([[2.0], [1.0]])
    chosen, seen = [], []
    for row in [policy_start() | {"is_active": 1.0}, *rows]:
        values = np.array([[row.get(column, math.nan) for column in FLOW_COLUMNS]])
        observation = history.add(spec.observation.evaluate(tabulate(values, gains, defaults("policy")[PREFERENCE])))
        action = agent.predict(observation)
        if not np.isnan(action).any():
            gains = spec.action.all_gains(action, np.array([row["bdp_packets"]]))
        chosen.append(gains[:, 0])
        seen.append(observation[0])
    return chosen, seen


@needs_compiler
@pytest.mark.parametrize("name", agents())
def test_it_decides_as_the_agent_about_what_a_run_measured(
    name: str, compiled: Compiled, rows: list[dict[str, float]]
) -> None:
    expected_gains, expected_observations = decide(compiled.agents[name], rows)
    gains, observations = compiled.run(name, rows)
    np.testing.assert_array_equal(observations, expected_observations)
    np.testing.assert_array_equal(gains, expected_gains)
    if name == "overflow":
        assert np.unique(gains).tolist() == [1.0, 2.0]  # as at the beginning
    else:
        assert len(np.unique(gains)) > 10


@needs_compiler
def test_it_is_cpp_too(compiled: Compiled) -> None:
    command = ["c++", "-x", "c++", "-std=c++11", *STRICT, "-fsyntax-only", compiled.source]
    subprocess.run(command, check=True, timeout=60)


def test_it_says_what_the_policy_is_and_how_often_it_decides(tmp_path: Path) -> None:
    for agent, interval in (
        (load_agent(REFERENCE), None),
        (make_agent(env={"step_ms": 12.5, "step_rtts": None}), "#define mine_step_ms 12.5\n"),
        (make_agent(env={"step_ms": None, "step_rtts": 2.0}), "#define mine_step_min_rtts 2.0\n"),
    ):
        write_c_header(agent.stored, tmp_path / "mine.h")
        text = (tmp_path / "mine.h").read_text()
        about = " ".join(text.partition("*/")[0].replace(" *", " ").split())
        assert all(f"{name}: {value}" in about for name, value in facts(agent.stored).items())
        assert interval is None or interval in text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(REFERENCE), str(tmp_path / "mine.h")]) == 0
    assert f"{tmp_path / 'mine.h'}: mine_reset and mine_step, with" in capsys.readouterr().out
    assert "static inline void mine_step(mine_state *state" in (tmp_path / "mine.h").read_text()
    assert main(["export", str(REFERENCE), str(tmp_path / "2-mine.h")]) == 1
    assert "must be letters, digits and '_', as policy.h, got '2-mine.h'" in capsys.readouterr().err

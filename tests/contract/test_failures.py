"""What a failing engine, a fork or another thread does to the environments of several engines, and to the others."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from fake_engine import FakeEngine
from forks import passes_in_fork, refuses
from marks import needs_ns3
from waiting import HANG_S, is_running, wait_for

from bbrgym import EngineError, Flow, Scenario
from bbrgym.envs.engine import Rows
from bbrgym.envs.episode import FAILURES_IN_A_ROW
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.gym_env import BottleneckEnv
from bbrgym.envs.native.engine import NativeEngine
from bbrgym.envs.pettingzoo_env import BottleneckParallelEnv
from bbrgym.envs.sb3_env import SharedPolicyVecEnv
from bbrgym.envs.vector_env import BottleneckVectorEnv

SCENARIO = Scenario(rate_mbps=6, duration_s=0.5, flows=(Flow("agent", rtt_ms=20), Flow("cubic", rtt_ms=30)))
PAIR = Scenario(rate_mbps=6, duration_s=0.5, flows=(Flow("agent", rtt_ms=20), Flow("agent", rtt_ms=30)))
FAILS = 1
"""The engine that is told to fail, of three."""


class Failing(FakeEngine):
    """Fails in the steps and resets that it is told, counted over all episodes."""

    made: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self.fails_in: set[int] = set()  # steps
        self.refuses = 0  # resets
        self._done = 0
        self.made.append(self)

    def _request_reset(self, scenario: Scenario, seed: int, policies: Mapping[int, bytes]) -> None:
        if self.refuses:
            self.refuses -= 1
            raise EngineError("it does not start")
        super()._request_reset(scenario, seed, policies)

    def _finish_request(self, scenario: Scenario) -> Rows:
        if self._pending == "step":
            self._done += 1
            if self._done in self.fails_in:
                raise EngineError(f"it fails in step {self._done}")
        return super()._finish_request(scenario)


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[Failing]:
    """The engines that were made, in order."""
    engines: list[Failing] = []
    monkeypatch.setattr(Failing, "made", engines, raising=False)
    return engines


def actions(step: int, count: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(step).uniform(-1, 1, (count, 2)).astype(np.float32)


class Form:
    """An environment with three engines."""

    def steps(self, count: int) -> None:
        for step in range(count):
            self.step(step)

    def step(self, step: int) -> Any:
        raise NotImplementedError


class Vector(Form):
    """A vector environment of three engines, and the results of each engine."""

    def __init__(self, mode: str = "NextStep") -> None:
        self.env = BottleneckVectorEnv(3, SCENARIO, engine=Failing, autoreset_mode=mode)

    def reset(self) -> None:
        self.env.reset(seed=7)

    def step(self, step: int) -> tuple[list[bytes], Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions(step, 3))
        assert not terminated.any()
        results = [observations[i].tobytes() + rewards[i].tobytes() + truncated[i].tobytes() for i in range(3)]
        return results, observations, rewards, truncated, infos, infos.get("final_info", infos)


class VecEnv(Form):
    """The same in the VecEnv of Stable-Baselines3, with two agents per engine."""

    def __init__(self) -> None:
        self.env = SharedPolicyVecEnv(EpisodeSpec(PAIR, engine=Failing), 3)

    def reset(self) -> None:
        self.env.seed(7)
        self.env.reset()

    def step(self, step: int) -> tuple[list[bytes], Any, Any, Any, Any, Any]:
        observations, rewards, dones, infos = self.env.step(actions(step, 6))
        rows = [observations[i].tobytes() + rewards[i].tobytes() + dones[i].tobytes() for i in range(6)]
        return [rows[2 * i] + rows[2 * i + 1] for i in range(3)], observations, rewards, dones, infos, infos


@pytest.mark.parametrize("make_form", [Vector, lambda: Vector("SameStep"), VecEnv], ids=["next", "same", "sb3"])
def test_a_step_in_which_an_engine_fails_is_as_if_nothing_had_happened_for_the_others(
    make_form: Callable[[], Any], made: list[Failing]
) -> None:
    """Each episode has five steps; the engine fails in the third."""
    results = []
    for fails_in in (set(), {3}):
        form = make_form()
        with contextlib.closing(form.env):
            form.reset()
            made[-3 + FAILS].fails_in = fails_in
            results.append([form.step(step)[0] for step in range(14)])
    undisturbed, disturbed = results
    for engine in range(3):
        is_equal = [a[engine] == b[engine] for a, b in zip(undisturbed, disturbed, strict=True)]
        assert is_equal == ([True] * 14 if engine != FAILS else [True] * 2 + [False] * 12)


def test_a_failed_environment_is_truncated_and_comes_back_with_the_next_step(made: list[Failing]) -> None:
    form = Vector()
    with contextlib.closing(form.env):
        form.reset()
        made[FAILS].fails_in = {2}
        _, before, *_, infos, _ = form.step(0)
        assert "engine_error" not in infos
        _, observations, rewards, truncated, infos, _ = form.step(1)
        assert truncated.tolist() == [False, True, False]
        assert observations[FAILS].tobytes() == before[FAILS].tobytes()
        assert rewards[FAILS] == 0
        assert infos["engine_error"].tolist() == [None, "it fails in step 2", None]
        assert infos["_engine_error"].tolist() == [False, True, False]
        _, observations, rewards, truncated, infos, _ = form.step(2)
        assert not truncated.any()
        assert rewards[FAILS] == 0
        assert "engine_error" not in infos
        assert form.step(3)[2][FAILS] != 0


def test_the_vec_env_truncates_all_agents_of_a_failed_engine(made: list[Failing]) -> None:
    form = VecEnv()
    with contextlib.closing(form.env):
        form.reset()
        made[FAILS].fails_in = {2}
        _, before, *_ = form.step(0)
        _, observations, rewards, dones, infos, _ = form.step(1)
        assert dones.tolist() == [False, False, True, True, False, False]
        assert rewards[2:4].tolist() == [0, 0]
        for row, info in enumerate(infos):
            if row not in (2, 3):
                assert "engine_error" not in info
                continue
            assert info["engine_error"] == "it fails in step 2"
            assert info["TimeLimit.truncated"] is True
            assert info["took_part"] is False  # a learner must not take its reward for one
            assert info["terminal_observation"].tobytes() == before[row].tobytes() != observations[row].tobytes()


@pytest.mark.parametrize("make_form", [Vector, lambda: Vector("SameStep"), VecEnv], ids=["next", "same", "sb3"])
def test_an_autoreset_is_repeated_until_there_are_too_many_failures(
    make_form: Callable[[], Any], made: list[Failing]
) -> None:
    form = make_form()
    with contextlib.closing(form.env):
        form.reset()
        failing = made[FAILS]
        failing.fails_in, failing.refuses = {1}, FAILURES_IN_A_ROW - 2
        form.steps(3)
        assert failing.refuses == 0
        failing.fails_in, failing.refuses = set(range(100)), 0  # every first step of an episode
        with pytest.raises(
            EngineError, match=r"1 of 3 engines failed 5 times in a row, the last time:\nengine 1: it f"
        ):
            form.steps(100)
        with pytest.raises(gymnasium.error.ResetNeeded):
            form.step(0)
        failing.fails_in, failing.refuses = {failing._done + 1}, 10**9
        with pytest.raises(EngineError, match=r"1 of 3 engines failed:\nengine 1: it does not start"):
            form.reset()
        failing.refuses = 0
        form.reset()
        failing.refuses = 10**9
        with pytest.raises(EngineError, match=r"5 times in a row, the last time:\nengine 1: it does not start"):
            form.steps(2)


@needs_ns3
@pytest.mark.parametrize("form", ["vector", "sb3"])
def test_one_reset_restarts_all_dead_workers(form: str) -> None:
    if form == "vector":
        env: Any = BottleneckVectorEnv(3, SCENARIO, engine="ns3")
    else:
        env = SharedPolicyVecEnv(EpisodeSpec(SCENARIO, engine="ns3"), 3)

    def reset() -> bytes:
        if form == "vector":
            return bytes(env.reset(seed=3)[0].tobytes())
        env.seed(3)
        return bytes(env.reset().tobytes())

    with contextlib.closing(env):
        first = reset()
        pids = [engine.pid for engine in env._episodes._engines._engines]
        os.kill(pids[1], signal.SIGKILL)
        wait_for(lambda: not is_running(pids[1]))
        *_, infos = env.step(np.zeros((3, 2), np.float32))
        reason = infos["engine_error"][1] if form == "vector" else infos[1]["engine_error"]
        assert reason.startswith("the simulator was killed by SIGKILL while simulating from 0 s on")
        for engine in env._episodes._engines._engines:
            if engine.pid is not None:
                os.kill(engine.pid, signal.SIGKILL)
        assert reset() == first
        assert not {engine.pid for engine in env._episodes._engines._engines} & set(pids)


# --- other threads --------------------------------------------------------------------------------------------------


class Waiting(NativeEngine):
    """Waits in a step until it may go on."""

    def __init__(self, is_stepping: threading.Event, may_go_on: threading.Event) -> None:
        super().__init__()
        self.is_stepping, self.may_go_on = is_stepping, may_go_on

    def _finish_request(self, scenario: Scenario) -> Rows:
        if self._pending == "step":
            self.is_stepping.set()
            assert self.may_go_on.wait(HANG_S)
        return super()._finish_request(scenario)


FORMS: Mapping[str, tuple[Callable[[EpisodeSpec], Any], Any]] = {
    "single": (BottleneckEnv.from_spec, np.zeros(2, np.float32)),
    "vector": (
        lambda spec: BottleneckVectorEnv(1, spec.distribution, engine=spec.engine),
        np.zeros((1, 2), np.float32),
    ),
    "sb3": (SharedPolicyVecEnv, np.zeros((1, 2), np.float32)),
    "parallel": (BottleneckParallelEnv, {"flow_0": np.zeros(2, np.float32)}),
}


@pytest.fixture
def stepping() -> Iterator[tuple[threading.Event, threading.Event]]:
    is_stepping, may_go_on = threading.Event(), threading.Event()
    yield is_stepping, may_go_on
    may_go_on.set()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_another_thread_and_a_fork_are_refused_in_the_middle_of_a_call(
    form: str, stepping: tuple[threading.Event, threading.Event]
) -> None:
    make_form, action = FORMS[form]
    env = make_form(EpisodeSpec(SCENARIO, engine=lambda: Waiting(*stepping)))
    env.reset()
    errors: list[BaseException] = []

    def step() -> None:
        try:
            env.step(action)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=step)
    thread.start()
    is_stepping, may_go_on = stepping
    assert is_stepping.wait(HANG_S)
    in_a_call = "another thread is in the middle of a call"
    refuses(in_a_call, env.reset, lambda: env.step(action), env.close)
    # In the middle of the step, whose thread the fork does not have.
    assert passes_in_fork(lambda: refuses(in_a_call, lambda: env.step(action)))
    may_go_on.set()
    thread.join(HANG_S)
    assert not errors
    env.step(action)  # the episode continues
    env.close()

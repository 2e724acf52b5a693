"""Ns3Engine on ns-3 itself: everything that can go wrong with a worker. tests/contract/test_engine.py has the rest."""

import contextlib
import dataclasses
import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import psutil
import pytest
from forks import OF_ANOTHER, passes_in_fork, refuses
from marks import needs_ns3
from traces import SCENARIO, run
from waiting import is_running, wait_for

from bbrgym.envs.engine import EngineError, EngineUnavailableError, check_is_available, make_engine
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.ns3.engine import Ns3Engine
from bbrgym.envs.sb3_env import SharedPolicyVecEnv
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.worker import engine as worker_engine
from bbrgym.envs.worker import process


@pytest.fixture(scope="module")
def engine() -> Iterator[Ns3Engine]:
    """One engine for all tests: those that end its worker show that the next reset starts another."""
    with contextlib.closing(Ns3Engine()) as engine:
        yield engine


@pytest.fixture(scope="module")
def sound(engine: Ns3Engine) -> bytes:
    return run(engine)


def worker_pid(engine: Ns3Engine) -> int:
    assert engine.pid is not None
    return engine.pid


# --- what goes wrong ------------------------------------------------------------------------------------------------


@needs_ns3
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("crash@2", r"killed by SIGABRT while simulating from 0.001 s on; it last printed:\n.*BBRGYM_FAULT"),
        ("hang@2", r"did not answer for 0.3\d* s \(timeout_s\) while simulating from 0.001 s on"),
        ("garbage@2", "the worker sent 7 bytes that are no valid EnvStateMsg"),
    ],
)
def test_a_fault_is_an_error_and_the_next_reset_is_sound(
    fault: str, message: str, sound: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BBRGYM_FAULT", fault)
    monkeypatch.setattr(process, "WORKER", Path(__file__).parents[1] / "faulty_worker.py")
    with contextlib.closing(Ns3Engine()) as faulty:
        faulty.reset(SCENARIO, 1)
        pid = worker_pid(faulty)
        faulty.step(1)
        if fault == "hang@2":
            faulty._timeout_s = 0.3
        with pytest.raises(EngineError, match=message):
            faulty.step(1)
        assert not is_running(pid)
        with pytest.raises(RuntimeError, match="reset first"):
            faulty.step(1)
        monkeypatch.undo()
        faulty._timeout_s = 10.0
        assert run(faulty) == sound
        assert faulty.pid != pid


@needs_ns3
def test_a_killed_worker_is_noticed_at_once(engine: Ns3Engine) -> None:
    slow = Scenario(rate_mbps=1000, duration_s=1000, flows=(Flow("bbr"),))
    engine.reset(slow, 1)
    engine.begin_step(1e6)
    threading.Timer(0.2, os.kill, (worker_pid(engine), signal.SIGKILL)).start()
    with pytest.raises(EngineError, match=r"killed by SIGKILL while simulating from 0 s on; it printed nothing"):
        engine.finish_step()  # which would take hours
    assert run(engine)


@needs_ns3
@pytest.mark.parametrize("is_noticed", [True, False], ids=["dead", "dying"])
def test_a_reset_replaces_a_worker_that_died_between_episodes(
    engine: Ns3Engine, sound: bytes, is_noticed: bool
) -> None:
    run(engine)
    pid = worker_pid(engine)
    if is_noticed:
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not is_running(pid))
        assert run(engine) == sound
    else:  # it lives when it is asked, and cannot answer
        os.kill(pid, signal.SIGSTOP)
        engine.begin_reset(SCENARIO, 1)
        os.kill(pid, signal.SIGKILL)
        assert engine.finish_reset().time_s == 0.0
    assert worker_pid(engine) != pid
    assert run(engine) == sound


@needs_ns3
def test_a_worker_that_does_not_start_is_an_error_that_names_the_limit(
    engine: Ns3Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine._release()
    engine.begin_reset(SCENARIO, 1)
    os.kill(worker_pid(engine), signal.SIGSTOP)
    monkeypatch.setattr(engine, "_start_limit_s", 0.3)
    with pytest.raises(EngineError, match=r"did not answer for 0.3 s \(start_limit_s\) while loading ns-3"):
        engine.finish_reset()
    monkeypatch.undo()
    assert run(engine)


class InterruptionError(Exception):
    pass


@needs_ns3
def test_an_interrupted_wait_leaves_nothing_behind(engine: Ns3Engine) -> None:
    def interrupt(*_: object) -> None:
        raise InterruptionError

    engine.reset(Scenario(rate_mbps=1000, duration_s=1000, flows=(Flow("bbr"),)), 1)
    engine.begin_step(1e6)
    pid = worker_pid(engine)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(InterruptionError):
            engine.finish_step()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not is_running(pid)
    assert run(engine)


FAKE_NS3 = """
import sys
class Simulation:
    def __init__(self, transport):
        pass
    def reset(self, scenario, seed):
        if seed == 13:
            raise ValueError("no episode 13")
        if seed == 14:
            for number in range(100_000):
                print("line", number, file=sys.stderr)
            raise KeyError("a defect")
        while seed == 15:
            print("x" * 100, file=sys.stderr)
    def rows(self):
        return [0.0] * 7
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ns3Engine]:
    """An engine whose worker loads something else in the place of ns-3."""
    extension = tmp_path / "_ns3.py"
    extension.write_text(FAKE_NS3)
    monkeypatch.setattr(worker_engine, "_file_of", lambda _: str(extension))
    with contextlib.closing(Ns3Engine()) as engine:
        yield engine


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (13, "ns-3 refuses the scenario: no episode 13"),
        (15, r"did not answer for 0.3 s \(timeout_s\) while beginning the episode; .*\nx{100}\nx{100}"),
        (1, r"7 numbers instead of .*_ns3\.py is of another version"),
    ],
    ids=["refused", "endless printing", "another version"],
)
def test_no_episode_is_an_error_with_the_reason(fake: Ns3Engine, seed: int, message: str) -> None:
    if seed == 15:
        fake._timeout_s = 0.3
    for _ in range(2):
        with pytest.raises(EngineError, match=message):
            fake.reset(SCENARIO, seed)


def test_a_defect_shows_the_last_lines_it_printed(fake: Ns3Engine) -> None:
    with pytest.raises(
        EngineError, match=r"exited with status 1 while beginning the episode; it last printed:"
    ) as error:
        fake.reset(SCENARIO, 14)
    lines = str(error.value).splitlines()
    assert lines[-1] == "KeyError: 'a defect'"
    assert "line 99999" in lines
    assert len(lines) == 1 + 40


def test_without_ns3_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        EngineError, match=r"engine ns-3 needs bbrgym\._ns3: pip install --no-deps ns3==3\.44\.post0, then"
    ):
        make_engine("ns3")


@needs_ns3
def test_without_the_libraries_of_ns3_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel that was built with ns-3, where ns-3 is not installed: its extension finds no library beside it."""
    spec = importlib.util.find_spec("bbrgym._ns3")
    assert spec is not None
    assert spec.origin is not None
    extension = shutil.copy(spec.origin, tmp_path)
    monkeypatch.setattr(worker_engine, "_file_of", lambda _: str(extension))
    message = r"^engine ns-3 cannot run here: libns3.*: pip install --no-deps ns3==3\.44\.post0; or use engine=native$"
    for use in (
        lambda: check_is_available("ns3"),
        lambda: gymnasium.make("bbrgym/Bottleneck-v1", engine="ns3").reset(),
        lambda: SharedPolicyVecEnv(EpisodeSpec("single", engine="ns3"), 3).reset(),
    ):
        with pytest.raises(EngineUnavailableError, match=message):
            use()


# --- processes, files, descriptors ----------------------------------------------------------------------------------


@needs_ns3
def test_nothing_is_left_of_many_engines_and_resets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def children() -> str:
        return Path(f"/proc/self/task/{os.getpid()}/children").read_text()

    with contextlib.closing(Ns3Engine()) as first:
        first.reset(SCENARIO, 1)  # what a process has once, it has now
    time.sleep(0.1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, others = descriptors(), children()  # other tests of this process may hold an engine
    for index in range(4):
        engine = Ns3Engine()
        engine.reset(SCENARIO, index)
        engine.step(10)
        engine.reset(SCENARIO, index)
        if index % 2:
            engine.close()  # and the others are just dropped
    del engine
    gc.collect()
    wait_for(lambda: descriptors() <= before)  # sockets close in the background
    assert children() == others
    assert list(tmp_path.iterdir()) == []


@needs_ns3
@pytest.mark.parametrize("how", ["exit", "kill", "kill while the worker is stopped"])
def test_the_end_of_a_process_is_the_end_of_its_simulating_worker(how: str) -> None:
    script = """
        import sys, time
        from bbrgym import Flow, Scenario, make_engine
        engine = make_engine("ns3")
        engine.reset(Scenario(rate_mbps=1000, duration_s=1000, flows=(Flow("bbr"),)), 1)
        engine.begin_step(1e6)
        print(engine.pid, flush=True)
        time.sleep(float(sys.argv[1]))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), "0" if how == "exit" else "600"]
    # In a session of its own, so that no process of its session adopts the worker.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        if how != "exit":
            assert is_running(pid)
            if how != "kill":
                os.kill(pid, signal.SIGSTOP)
                wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
            parent.kill()
        assert (parent.wait() == 0) is (how == "exit")
    if how != "exit":  # it may notice a little later
        wait_for(lambda: not is_running(pid))
    assert not is_running(pid)


@needs_ns3
def test_the_end_of_the_thread_that_started_it_is_not_the_end_of_the_worker(engine: Ns3Engine) -> None:
    thread = threading.Thread(target=engine.reset, args=(SCENARIO, 1))
    thread.start()
    thread.join()
    time.sleep(0.7)  # longer than the worker's own look at its parent
    assert engine.step(10).time_s == pytest.approx(0.01)


@needs_ns3
def test_a_fork_cannot_use_the_worker_and_leaves_it_alone(sound: bytes) -> None:
    with contextlib.closing(Ns3Engine()) as engine:
        engine.reset(SCENARIO, 1)
        engine.begin_step(10)
        uses = (engine.finish_step, lambda: engine.reset(SCENARIO, 1), lambda: engine.begin_step(10))

        def check() -> None:
            refuses(OF_ANOTHER, *uses, *uses)
            engine.close()

        assert passes_in_fork(check)
        assert engine.finish_step().time_s == pytest.approx(0.01)
        assert run(engine) == sound


@needs_ns3
def test_a_request_may_be_larger_than_the_socket_holds(engine: Ns3Engine, sound: bytes) -> None:
    schedule = tuple((index / 1000, 12 + index / 30_001) for index in range(20_000))  # 500 kB
    engine.reset(dataclasses.replace(SCENARIO, rate_schedule=schedule), 1)
    assert run(engine) == sound

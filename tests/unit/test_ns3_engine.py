"""Ns3Engine on ns-3 itself: the contract, determinism, and everything that can go wrong with a worker."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import math
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import EngineError, Rows, make_engine
from bbrgym.envs.ns3 import engine as ns3gym_engine
from bbrgym.envs.ns3.engine import Ns3Engine
from bbrgym.envs.scenario import Flow, Scenario

needs_ns3 = pytest.mark.skipif(importlib.util.find_spec("bbrgym._ns3") is None, reason="bbrgym was built without ns-3")

SCENARIO = Scenario(rate_mbps=12, duration_s=2.0, loss=0.001, flows=(Flow("agent", rtt_ms=20), Flow("bbr", rtt_ms=20)))


@pytest.fixture
def engine() -> Iterator[Ns3Engine]:
    engine = Ns3Engine()
    yield engine
    engine.close()


def run(
    engine: Ns3Engine, seed: int = 1, scenario: Scenario = SCENARIO, gains: tuple[float, float] | None = None
) -> bytes:
    """All numbers of an episode."""
    rows = engine.reset(scenario, seed)
    numbers = [as_bytes(rows)]
    while not rows.is_over:
        if gains is not None:
            engine.steer(0, *gains)
        rows = engine.step(100)
        numbers.append(as_bytes(rows))
    return b"".join(numbers)


def as_bytes(rows: Rows) -> bytes:
    return np.concatenate([[rows.time_s], rows.link, rows.flows.ravel()]).tobytes()


def worker_pid(engine: Ns3Engine) -> int:
    assert engine.pid is not None
    return engine.pid


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def becomes_true(condition: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


# --- the contract ---------------------------------------------------------------------------------------------------


@needs_ns3
def test_an_episode_from_beginning_to_end() -> None:
    engine = make_engine("ns3")
    try:
        rows = engine.reset(SCENARIO, 1)
        assert (rows.time_s, rows.is_over, rows.is_complete) == (0.0, False, False)
        assert rows.flows.shape == (2, len(FLOW_COLUMNS))
        assert rows.link.shape == (len(LINK_COLUMNS),)
        assert rows.flow(0)["delivered_packets"] == 0
        assert math.isnan(rows.flow(0)["rtt_mean_ms"])
        times = []
        while not rows.is_over:
            rows = engine.step(300)
            assert engine.rows() is rows
            times.append(rows.time_s)
        assert times == pytest.approx([0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.0])
        assert rows.flow(0)["delivered_packets"] > 0
        assert 20 <= rows.flow(0)["rtt_min_ms"] < 200
        assert rows.link_row()["rate_mbps"] == 12
    finally:
        engine.close()


@needs_ns3
def test_a_finite_flow_completes_the_episode(engine: Ns3Engine) -> None:
    rows = engine.reset(Scenario(duration_s=20, flows=(Flow("bbr", rtt_ms=20, size_bytes=50_000),)), 1)
    rows = engine.step(20_000)
    assert (rows.is_over, rows.is_complete) == (True, True)
    assert rows.time_s < 5


@needs_ns3
def test_equal_seeds_give_equal_bytes_in_any_worker_and_after_any_episode(engine: Ns3Engine) -> None:
    first = run(engine)
    assert run(engine, seed=2) != first
    assert run(engine) == first
    engine.reset(SCENARIO, 3)
    engine.step(700)
    assert run(engine) == first  # after an abandoned one
    other = Ns3Engine()
    try:
        assert run(other) == first
    finally:
        other.close()


@needs_ns3
def test_gains_are_the_controllers_own_until_steered(engine: Ns3Engine) -> None:
    unsteered = run(engine)
    assert run(engine, gains=(2.0, 1.0)) == unsteered  # the defaults of `agent`
    assert run(engine, gains=(1.0, 0.5)) != unsteered
    flows = (Flow("agent", rtt_ms=20, parameters={"cwnd_gain": 1.0, "pacing_gain": 0.5}), SCENARIO.flows[1])
    configured = Scenario(rate_mbps=12, duration_s=2.0, loss=0.001, flows=flows)
    assert run(engine, scenario=configured) == run(engine, gains=(1.0, 0.5))


@needs_ns3
def test_gains_are_held_until_changed(engine: Ns3Engine) -> None:
    engine.reset(SCENARIO, 1)
    engine.steer(0, 1.0, 0.5)
    for _ in range(15):
        rows = engine.step(100)
    assert (rows.flow(0)["cwnd_gain"], rows.flow(0)["pacing_gain"]) == (1.0, 0.5)


@needs_ns3
def test_several_engines_work_at_once() -> None:
    engines = [Ns3Engine() for _ in range(3)]
    try:
        alone = run(engines[0], seed=0)
        for seed, engine in enumerate(engines):
            engine.begin_reset(SCENARIO, seed)
        numbers = [as_bytes(engine.finish_reset()) for engine in engines]
        for _ in range(20):
            for engine in engines:
                engine.begin_step(100)
            for index, engine in enumerate(engines):
                numbers[index] += as_bytes(engine.finish_step())
        assert numbers[0] == alone
        assert len(set(numbers)) == 3
        assert all(engine.rows().is_over for engine in engines)
    finally:
        for engine in engines:
            engine.close()


@needs_ns3
def test_calls_out_of_order_are_refused_and_change_nothing(engine: Ns3Engine) -> None:
    too_early: list[Callable[[], object]] = [
        engine.rows,
        engine.finish_reset,
        engine.finish_step,
        lambda: engine.step(1),
    ]
    for call in too_early:
        with pytest.raises(RuntimeError, match=r"reset|begin_step"):
            call()
    with pytest.raises(RuntimeError, match="before reset"):
        engine.steer(0, 1, 1)
    engine.begin_reset(SCENARIO, 1)
    begin: list[Callable[[], object]] = [lambda: engine.begin_reset(SCENARIO, 2), lambda: engine.begin_step(1)]
    for call in (*begin, engine.finish_step):
        with pytest.raises(RuntimeError, match="reset is outstanding"):
            call()
    engine.finish_reset()
    engine.begin_step(1)
    for call in (*begin, engine.finish_reset):
        with pytest.raises(RuntimeError, match="step is outstanding"):
            call()
    assert engine.finish_step().time_s == pytest.approx(0.001)
    engine.step(5000)
    with pytest.raises(RuntimeError, match="over since 2 s"):
        engine.step(1)
    engine.close()
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        engine.reset(SCENARIO, 1)


@needs_ns3
def test_bad_arguments_are_refused_by_value(engine: Ns3Engine) -> None:
    for timeout_s in (0, -1, math.inf, math.nan, "10"):
        with pytest.raises(ValueError, match="timeout_s="):
            Ns3Engine(timeout_s=timeout_s)  # type: ignore[arg-type]
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match="seed="):
            engine.begin_reset(SCENARIO, seed)
    engine.reset(SCENARIO, 2**64 - 1)
    with pytest.raises(ValueError, match="agent flows are 0"):
        engine.steer(1, 1, 1)
    for gain in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="gains"):
            engine.steer(0, 1.0, gain)
    for duration_ms in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="duration_ms="):
            engine.step(duration_ms)
    assert engine.step(1).time_s == pytest.approx(0.001)


@needs_ns3
def test_a_step_beyond_all_measure_ends_with_the_scenario(engine: Ns3Engine) -> None:
    engine.reset(SCENARIO, 1)
    assert engine.step(1e300).time_s == 2.0


@needs_ns3
def test_numpy_numbers_in_a_scenario(engine: Ns3Engine) -> None:
    flow = Flow("bbr", rtt_ms=np.float32(20), size_bytes=np.int64(10**9))  # type: ignore[arg-type]
    assert engine.reset(Scenario(duration_s=1, flows=(flow,)), np.int64(1)).time_s == 0.0  # type: ignore[arg-type]


# --- what goes wrong ------------------------------------------------------------------------------------------------


@needs_ns3
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("crash@2", r"killed by Aborted \(6\) while simulating from 0.001 s on; it last printed:\n.*BBRGYM_FAULT"),
        ("hang@2", r"did not answer for 0.3\d* s while simulating from 0.001 s on"),
        ("garbage@2", "7 bytes that are no EnvStateMsg"),
    ],
)
def test_a_fault_is_an_error_and_the_next_reset_is_sound(
    fault: str, message: str, engine: Ns3Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = run(engine)
    engine.close()
    monkeypatch.setenv("BBRGYM_FAULT", fault)
    with contextlib.closing(Ns3Engine(timeout_s=0.3)) as faulty:
        faulty.reset(SCENARIO, 1)
        pid = worker_pid(faulty)
        faulty.step(1)
        with pytest.raises(EngineError, match=message):
            faulty.step(1)
        assert not is_running(pid)
        with pytest.raises(RuntimeError, match="reset first"):
            faulty.step(1)
        monkeypatch.delenv("BBRGYM_FAULT")
        assert run(faulty) == sound
        assert faulty.pid != pid


@needs_ns3
def test_a_killed_worker_is_noticed_at_once(engine: Ns3Engine) -> None:
    slow = Scenario(rate_mbps=1000, duration_s=1000, flows=(Flow("bbr"),))
    engine.reset(slow, 1)
    engine.begin_step(1e6)
    threading.Timer(0.2, os.kill, (worker_pid(engine), signal.SIGKILL)).start()
    began = time.monotonic()
    with pytest.raises(EngineError, match=r"killed by Killed \(9\) while simulating from 0 s on; it printed nothing"):
        engine.finish_step()
    assert time.monotonic() - began < 5
    assert run(engine)


@needs_ns3
def test_a_worker_killed_between_episodes_is_an_error_once(engine: Ns3Engine) -> None:
    run(engine)
    os.kill(worker_pid(engine), signal.SIGKILL)
    with contextlib.suppress(EngineError):  # it may still have said that it is ready
        engine.reset(SCENARIO, 1)
    assert run(engine)


@needs_ns3
def test_a_stopped_worker_is_killed_in_time() -> None:
    with contextlib.closing(Ns3Engine(timeout_s=0.3)) as engine:
        engine.reset(SCENARIO, 1)
        pid = worker_pid(engine)
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(EngineError, match="did not answer"):
            engine.step(1)
        assert 0.3 < time.monotonic() - began < 5
        assert not is_running(pid)


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
    monkeypatch.setattr(ns3gym_engine, "_extension_file", lambda: str(extension))
    with contextlib.closing(Ns3Engine()) as engine:
        yield engine


def test_a_refused_scenario_is_an_error_with_the_reason(fake: Ns3Engine) -> None:
    for _ in range(2):
        with pytest.raises(EngineError, match="ns-3 refuses the scenario: no episode 13"):
            fake.reset(SCENARIO, 13)


def test_a_defect_shows_the_last_lines_it_printed(fake: Ns3Engine) -> None:
    with pytest.raises(
        EngineError, match=r"exited with status 1 while beginning the episode; it last printed:"
    ) as error:
        fake.reset(SCENARIO, 14)
    lines = str(error.value).splitlines()
    assert lines[-1] == "KeyError: 'a defect'"
    assert "line 99999" in lines
    assert len(lines) == 1 + 20


def test_endless_printing_is_no_answer(fake: Ns3Engine) -> None:
    fake._timeout_s = 0.3
    with pytest.raises(EngineError, match=r"did not answer for 0.3 s while beginning the episode; .*\nx{100}\nx{100}"):
        fake.reset(SCENARIO, 15)


def test_an_extension_of_another_version_is_named(fake: Ns3Engine) -> None:
    with pytest.raises(EngineError, match=r"7 numbers instead of .*_ns3\.py is of another version"):
        fake.reset(SCENARIO, 1)


def test_a_bad_fault_switch_says_so(fake: Ns3Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BBRGYM_FAULT", "explode@1")
    with pytest.raises(EngineError, match=r"status 1 while starting an episode.*(\n.*)*'explode@1' is not possible"):
        fake.reset(SCENARIO, 1)


def test_without_ns3_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineError, match=r"engine 'ns3' needs ns-3: pip install --no-deps ns3==3\.44\.post0, then"):
        make_engine("ns3")


# --- processes, files, descriptors ----------------------------------------------------------------------------------


@needs_ns3
def test_the_worker_starts_fast_and_without_numpy(engine: Ns3Engine) -> None:
    engine.reset(SCENARIO, 1)
    maps = Path(f"/proc/{worker_pid(engine)}/maps").read_text()
    assert "_ns3" in maps
    assert "numpy" not in maps
    assert "pandas" not in maps


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
    for index in range(50):
        engine = Ns3Engine()
        engine.reset(SCENARIO, index)
        engine.step(10)
        engine.reset(SCENARIO, index)
        if index % 2:
            engine.close()  # and the others are just dropped
    del engine
    gc.collect()
    assert becomes_true(lambda: descriptors() <= before, 5), (descriptors(), before)  # sockets close in the background
    assert children() == others
    assert list(tmp_path.iterdir()) == []


def python(script: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)


@needs_ns3
def test_a_killed_parent_takes_its_simulating_worker_with_it() -> None:
    parent = python(
        """
        import time
        from bbrgym import Flow, Scenario, make_engine
        engine = make_engine("ns3")
        engine.reset(Scenario(rate_mbps=1000, duration_s=1000, flows=(Flow("bbr"),)), 1)
        engine.begin_step(1e6)
        print(engine.pid, engine._peer.endpoint.removeprefix("ipc://"), flush=True)
        time.sleep(60)
        """
    )
    assert parent.stdout is not None
    pid, socket = parent.stdout.readline().split()
    time.sleep(0.2)
    assert is_running(int(pid))
    parent.kill()
    parent.wait()
    assert becomes_true(lambda: not is_running(int(pid)), 1.0)
    assert becomes_true(lambda: not Path(socket).parent.exists(), 1.0)
    parent.stdout.close()


@needs_ns3
def test_an_engine_that_nobody_closes_ends_with_its_process() -> None:
    parent = python(
        """
        from bbrgym import Flow, Scenario, make_engine
        engine = make_engine("ns3")
        engine.reset(Scenario(rate_mbps=1000, duration_s=1000, flows=(Flow("bbr"),)), 1)
        engine.begin_step(1e6)
        print(engine.pid, engine._peer.endpoint.removeprefix("ipc://"), flush=True)
        """
    )
    out, _ = parent.communicate(timeout=30)
    pid, socket = out.split()
    assert parent.returncode == 0
    assert not is_running(int(pid))
    assert not Path(socket).parent.exists()


@needs_ns3
def test_the_end_of_the_thread_that_started_it_is_not_the_end_of_the_worker(engine: Ns3Engine) -> None:
    thread = threading.Thread(target=engine.reset, args=(SCENARIO, 1))
    thread.start()
    thread.join()
    time.sleep(0.7)  # longer than the worker's own look at its parent
    assert engine.step(10).time_s == pytest.approx(0.01)


@needs_ns3
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_forked_process_leaves_the_worker_alone(engine: Ns3Engine) -> None:
    engine.reset(SCENARIO, 1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            engine.close()
            del engine
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert engine.step(10).time_s == pytest.approx(0.01)


@needs_ns3
def test_a_long_temporary_folder_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with contextlib.closing(Ns3Engine()) as engine:
        assert engine.reset(SCENARIO, 1).time_s == 0.0

"""Ns3GymEnv with a stock simulation: a small program that speaks the protocol byte for byte as ns-3's side does."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from forks import OF_ANOTHER, passes_in_fork, refuses
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from test_ns3gym_messages import INIT
from waiting import free_port, is_running

from bbrgym.envs.engine import EngineError
from bbrgym.envs.ns3gym import client
from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
from bbrgym.envs.ns3gym.client import Ns3GymEnv

# Arguments as a stock simulation has them: --openGymPort, --simSeed, and keys of its own. The observation is
# [step, seed modulo 10, last action, 0, 0].
SIMULATION = f"""
import os, sys, time
sys.path.insert(0, {str(Path(pb.__file__).parent)!r})
import ns3gym_pb2 as pb
import zmq

options = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[1:])
seed, steps, fault = int(options["simSeed"]), int(options.get("steps", 3)), options.get("fault", "")
print("options", sorted(options.items()), flush=True)
if fault == "mute":
    time.sleep(60)
if fault == "missing":
    sys.exit("no such scenario")
if fault == "usage":  # as ns-3 refuses an argument
    print("Invalid command-line argument: --testArg", *(f"    --option{{i}}: its use" for i in range(32)), sep="\\n")
    sys.exit(1)
socket = zmq.Context().socket(zmq.REQ)
socket.connect("tcp://localhost:" + options["openGymPort"])
socket.send(bytes.fromhex("{INIT}") if fault != "alien" else b"HTTP/1.1")
ack = pb.SimInitAck.FromString(socket.recv())
action = 0
step = 0
while not ack.stopSimReq:
    box = pb.BoxDataContainer(dtype=pb.UINT, shape=[5], uintData=[step, seed % 10, action, 0, 0])
    state = pb.EnvStateMsg(reward=step / 2, info=f"step {{step}}", isGameOver=step == steps)
    state.reason = int(options.get("reason", 0))
    if not state.isGameOver or fault != "bare end":
        state.obsData.type = pb.Box
        state.obsData.data.Pack(box)
    if step == 2 and fault == "die":
        print("assert failed. cond=1 > 2", file=sys.stderr, flush=True)
        os.abort()
    if step == 2 and fault == "hang":
        time.sleep(60)
    if step == 2 and fault == "garbage":
        socket.send(b"\\xff" * 9)
    else:
        socket.send(state.SerializeToString())
    message = pb.EnvActMsg.FromString(socket.recv())
    if message.stopSimReq:
        break
    discrete = pb.DiscreteDataContainer()
    assert message.actData.data.Unpack(discrete)
    action = discrete.data
    step += 1
if "results" in options:
    time.sleep(0.3)
    open(options["results"], "w").write(f"{{step}} {{message.stopSimReq}}")
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    script = tmp_path / "simulation.py"
    script.write_text(SIMULATION)
    return [sys.executable, str(script)]


@pytest.fixture
def env(command: list[str], request: pytest.FixtureRequest) -> Iterator[Ns3GymEnv]:
    with contextlib.closing(Ns3GymEnv(command, sim_seed=1, sim_args=getattr(request, "param", None))) as env:
        yield env


def episode(env: Ns3GymEnv, seed: int | None = None) -> list[list[int]]:
    observation, _ = env.reset(seed=seed)
    observations = [observation.tolist()]
    is_over = False
    while not is_over:
        observation, _, terminated, truncated, _ = env.step(4)
        is_over = terminated or truncated
        observations.append(observation.tolist())
    return observations


def test_an_episode(env: Ns3GymEnv) -> None:
    assert env.observation_space == spaces.Box(0, 10, (5,), np.uint32)
    assert env.action_space == spaces.Discrete(5)
    first, info = env.reset()
    assert (first.dtype, first.shape, info) == (np.uint32, (5,), {"info": "step 0"})
    results = [env.step(action) for action in (3, 1, 4)]
    assert [observation[[0, 2]].tolist() for observation, *_ in results] == [[1, 3], [2, 1], [3, 4]]
    assert [result[1] for result in results] == [0.5, 1.0, 1.5]
    assert [result[2:4] for result in results] == [(False, False), (False, False), (False, True)]
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"the episode is over: call reset\(\)"):
        env.step(0)
    assert env.reset()[1] == {"info": "step 0"}


@pytest.mark.filterwarnings("error")
def test_passes_gymnasiums_checker_without_a_warning(env: Ns3GymEnv) -> None:
    check_env(env, skip_render_check=True)


@pytest.mark.parametrize(
    ("env", "last", "terminated"),
    [({"steps": 1, "reason": 1}, 1, True), ({"steps": 1, "fault": "bare end"}, 0, False)],
    indirect=["env"],
    ids=["game over", "no observation"],
)
def test_game_over_terminates_and_an_end_without_observation_repeats_the_last(
    env: Ns3GymEnv, last: int, terminated: bool
) -> None:
    env.reset()
    observation, _, *ends, _ = env.step(0)
    assert (int(observation[0]), ends) == (last, [terminated, not terminated])


def test_every_episode_has_its_own_seed_and_all_follow_from_the_first(env: Ns3GymEnv, command: list[str]) -> None:
    seeds = [episode(env)[0][1] for _ in range(3)]
    assert len(set(seeds)) > 1
    with contextlib.closing(Ns3GymEnv(command, sim_seed=1)) as same:
        assert [episode(same)[0][1] for _ in range(3)] == seeds
    by_reset = [episode(env, seed=7), episode(env)]
    assert [episode(env, seed=7), episode(env)] == by_reset


def test_a_reset_ends_the_running_episode_in_good_order(command: list[str], tmp_path: Path) -> None:
    results = tmp_path / "results"
    with contextlib.closing(Ns3GymEnv(command, sim_args={"results": results})) as env:
        env.reset()
        env.step(0)
        pid = env.pid
        env.reset()
        assert results.read_text() == "1 True"  # the program had time to write
        assert env.pid != pid
        env.step(0)
        env.step(0)
    assert results.read_text() == "2 True"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("die", r"killed by SIGABRT while simulating; it last printed:\n(.*\n)*assert failed. cond=1 > 2"),
        ("hang", "did not answer for 0.7 s while simulating"),
        ("garbage", "the program sent 9 bytes that are no valid EnvStateMsg: Error parsing message"),
    ],
)
def test_a_failing_program_is_an_error_and_its_process_is_gone(command: list[str], fault: str, message: str) -> None:
    with contextlib.closing(Ns3GymEnv(command, sim_args={"fault": fault})) as env:
        env.reset()
        pid = env.pid
        assert pid is not None
        env.step(0)
        env._timeout_s = 0.7  # not before: the start of a process on a busy machine is not what is tested
        with pytest.raises(EngineError, match=message):
            env.step(0)
        assert not is_running(pid)
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(0)
        env._timeout_s = 60
        assert env.reset()[1] == {"info": "step 0"}


@pytest.mark.parametrize(
    ("sim_args", "message"),
    [
        ({"fault": "mute"}, "did not answer for 0.3 s while starting"),
        ({"fault": "alien"}, "the program sent 8 bytes that are no valid SimInitMsg: Error parsing message"),
        (
            {"fault": "usage", "testArg": 123},
            r"exited with status 1 while starting; it last printed:\n(.*\n)*Invalid command-line argument: --testArg\n",
        ),
        (
            {"fault": "missing", "enabled": True, "rate": 2.5, "name": "a b"},  # passed as ns-3 reads them
            r"exited with status 1 while starting; it last printed:\n.*\('enabled', 'true'\).*\('name', 'a b'\).*"
            r"\('rate', '2.5'\).*\nno such scenario$",
        ),
    ],
)
def test_a_program_that_does_not_start_is_refused(command: list[str], sim_args: dict[str, Any], message: str) -> None:
    timeout_s = 0.3 if sim_args["fault"] == "mute" else 60
    with pytest.raises(EngineError, match=message):
        Ns3GymEnv(command, sim_args=sim_args, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"command": "./prog"}, "must be a list"),
        ({"command": None}, "port must be given with command=None"),
        ({"sim_args": {"simSeed": 3}}, "simSeed"),
        ({"command": ["/no/such/program"]}, "cannot start '/no/such/program': No such file"),
    ],
)
def test_bad_arguments_are_refused_by_value(arguments: dict[str, Any], message: str, command: list[str]) -> None:
    with pytest.raises((ValueError, EngineError), match=message):
        Ns3GymEnv(**{"command": command} | arguments)


def test_the_port_is_on_loopback_alone_and_named_where_it_is_used(command: list[str], env: Ns3GymEnv) -> None:
    with pytest.raises(EngineError, match=f"port {env.port} is already in use: choose another, or 0 for a free one"):
        Ns3GymEnv(command, port=env.port)
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if " 0A " in line]
    assert f"0100007F:{env.port:04X}" in listening
    assert f"00000000:{env.port:04X}" not in listening


def test_a_program_that_somebody_else_starts(command: list[str]) -> None:
    port = free_port()
    programs: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        arguments = [*command, f"--openGymPort={port}", "--simSeed=23"]
        programs.append(subprocess.Popen(arguments, stdout=subprocess.DEVNULL))

    threading.Timer(0.1, start).start()
    with contextlib.closing(Ns3GymEnv(None, port=port, timeout_s=20)) as env:
        assert [row[1] for row in episode(env, seed=5)] == [3] * 4
        assert programs[0].wait(10) == 0  # it was told to stop
        threading.Timer(0.1, start).start()
        assert len(episode(env)) == 4
        assert programs[1].wait(10) == 0


def test_close_leaves_no_process(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_GRACE_S", 0.3)
    env = Ns3GymEnv(command)
    env.reset()
    pid = env.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # it cannot end by itself
    began = time.monotonic()
    env.close()
    env.close()
    assert time.monotonic() - began < 5
    assert not is_running(pid)
    with pytest.raises(EngineError, match="closed"):
        env.reset()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_fork_cannot_use_the_program_and_leaves_it_alone(env: Ns3GymEnv) -> None:
    env.reset()

    def check() -> None:
        refuses(OF_ANOTHER, lambda: env.step(0), env.reset)
        env.close()

    assert passes_in_fork(check)
    assert env.step(0)[4] == {"info": "step 1"}

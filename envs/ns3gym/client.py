"""A Gymnasium environment for any stock ns3-gym simulation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import gymnasium
import zmq
from gymnasium import spaces
from gymnasium.utils import seeding

from bbrgym.checks import check_integer, check_number
from bbrgym.envs.engine import EngineError, OneThread, in_one_thread
from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
from bbrgym.envs.ns3gym.messages import pack_data, unpack_data, unpack_space
from bbrgym.envs.ns3gym.peer import ZmqPeer, reading
from bbrgym.waiting import announcing

_GRACE_S: Final = 5.0
"""How long a program that was told to stop may take: many write their results then."""

_LARGEST_SEED: Final = 2**31 - 1
"""ns-3 takes 32 bits; 0 means a fresh seed, which is not reproducible."""

_STOP: Final = pb.EnvActMsg(stopSimReq=True).SerializeToString()


class Ns3GymEnv(gymnasium.Env[Any, Any]):
    """A simulation program written for ns3-gym, unchanged.

    ## Description
    This environment starts the program, which connects to it and simulates one step at a time. Every episode is a new
    run of the program with a new seed. The program ends with `close`, with this object, and with this process, however
    that ends.

    ## Action Space
    The program defines it: Discrete, Box, Tuple or Dict. Doubles are sent as floats, as in the stock client.

    ## Observation Space
    The program defines it. Not all programs respect their own bounds.

    ## Rewards
    The program defines them.

    ## Starting State
    The program's first state. `reset(seed=…)` decides the `--simSeed` of this and all later episodes.

    ## Episode End
    Termination when the program says that the game is over, truncation when its simulation time has passed.

    ## Arguments
    Args:
        command: the program and its arguments; `--openGymPort=…`, `--simSeed=…` and `sim_args` are appended. None waits
            for a program that is started elsewhere, again for every episode and with a seed chosen there.
        port: TCP port on the loopback interface; 0 is a free one.
        sim_seed: generates the seeds of the episodes until `reset(seed=…)`; None is a fresh one.
        sim_args: further arguments as {key: value}, passed as `--key=value`.
        timeout_s: how long an answer of the program may take, in s. A program that takes longer is killed.

    Raises:
        EngineError: the port is in use, or the program cannot be started, died, or does not speak ns3-gym.
        ValueError: an argument is bad.

    ## Version History
    * v0: initial version
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # declared so by gymnasium.Env

    def __init__(
        self,
        command: Sequence[str] | None,
        port: int = 0,
        sim_seed: int | None = None,
        sim_args: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        port = check_integer("port", port, at_least=0, at_most=65535)
        _check(command, port, sim_args, timeout_s)
        self._command = None if command is None else [*command, *_arguments(sim_args or {})]
        self._timeout_s = timeout_s
        self._one_thread = OneThread()
        self._np_random, self._np_random_seed = seeding.np_random(sim_seed)
        try:
            self._peer = ZmqPeer(f"tcp://127.0.0.1:{port or '*'}")
        except zmq.ZMQError as error:
            raise EngineError(_bind_error(port, error)) from error
        self._phase = "over"
        self._last_observation: Any = None
        try:
            with self._ending_program_on_error():
                self.observation_space, self.action_space = self._start_program()
        except BaseException:
            self.close()
            raise

    @property
    def port(self) -> int:
        """The TCP port to which the program connects."""
        return int(self._peer.endpoint.rpartition(":")[2])

    @property
    def pid(self) -> int | None:
        """Process id of the running program; None if it was not started here."""
        return self._peer.pid

    @in_one_thread
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode in a new run of the program.

        Raises:
            EngineError: the program died, did not answer, or sent something that is not an ns3-gym message.
        """
        super().reset(seed=seed)
        with self._ending_program_on_error():
            # The run that the constructor started serves the first episode, unless a seed is given.
            is_usable = self._phase == "started" and (seed is None or self._command is None)
            if not is_usable:
                self._stop_program()
                found = self._start_program()
                if found != (self.observation_space, self.action_space):
                    raise EngineError(f"the program's spaces have changed to {found[0]}, {found[1]}")
            self._peer.send(pb.SimInitAck(done=True).SerializeToString())
            self._phase = "running"
            self._last_observation = None
            state = self._receive_state("beginning the episode")
            if state.isGameOver:
                raise EngineError(f"the program ended before its first step; its info is {state.info!r}")
        return self._last_observation, {"info": state.info}

    @in_one_thread
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Send an action and wait for its results.

        Raises:
            gymnasium.error.ResetNeeded: there was no reset, or the episode is over.
            ValueError: the action does not have the structure of the action space.
            EngineError: the program died, did not answer, or sent something that is not an ns3-gym message.
        """
        if self._phase != "running":
            raise gymnasium.error.ResetNeeded(f"step() when the episode is {self._phase}: call reset() first")
        message = pb.EnvActMsg(actData=pack_data(self.action_space, action, is_action=True)).SerializeToString()
        with self._ending_program_on_error():
            self._peer.send(message)
            state = self._receive_state("simulating")
            if state.isGameOver:
                self._peer.send(_STOP)
                self._phase = "over"
        terminated = state.isGameOver and state.reason == pb.EnvStateMsg.GameOver
        return (
            self._last_observation,
            state.reward,
            terminated,
            state.isGameOver and not terminated,
            {"info": state.info},
        )

    @in_one_thread
    def close(self) -> None:
        """End the program and free the port; calling it twice is fine."""
        if self._phase != "closed":
            if self._peer.is_ours:
                self._stop_program()
            self._phase = "closed"
            self._peer.close()

    def _start_program(self) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        if self._phase == "closed":
            raise EngineError("the environment is closed")
        if self._command is not None:
            seed = int(self.np_random.integers(1, _LARGEST_SEED, endpoint=True))
            self._peer.start([*self._command, f"--openGymPort={self.port}", f"--simSeed={seed}"])
        with announcing(f"a simulation at port {self.port}"):
            message = self._peer.receive(self._timeout_s, lambda: "starting")
        with reading("the program", "SimInitMsg", message):
            hello = pb.SimInitMsg.FromString(message)
            if hello.error:
                raise EngineError(f"the program does not start: {hello.error}")
            found = unpack_space(hello.obsSpace), unpack_space(hello.actSpace)
        self._phase = "started"
        return found

    def _receive_state(self, doing: str) -> pb.EnvStateMsg:
        message = self._peer.receive(self._timeout_s, lambda: doing)
        with reading("the program", "EnvStateMsg", message):
            state = pb.EnvStateMsg.FromString(message)
            # The last message may come without an observation.
            if state.HasField("obsData"):
                self._last_observation = unpack_data(self.observation_space, state.obsData)
        if self._last_observation is None and not state.isGameOver:
            raise EngineError("the program's first state has no observation")
        return state

    def _stop_program(self) -> None:
        """Tell the program to stop if it waits for an answer, and end it."""
        if self._phase == "started":
            self._peer.send(pb.SimInitAck(stopSimReq=True).SerializeToString())
        elif self._phase == "running":
            self._peer.send(_STOP)
        self._end_program(_GRACE_S)

    def _end_program(self, grace_s: float) -> None:
        self._peer.end_process(grace_s)
        if self._phase != "closed":
            self._phase = "over"

    @contextlib.contextmanager
    def _ending_program_on_error(self) -> Iterator[None]:
        self._peer.check_process()
        # Also after an interrupt from the keyboard: the answer that was not waited for must not be taken for the next.
        try:
            yield
        except BaseException:
            self._end_program(0.0)
            raise


def _check(command: Sequence[str] | None, port: int, sim_args: Mapping[str, Any] | None, timeout_s: float) -> None:
    if isinstance(command, str) or (command is not None and not command):
        raise ValueError(f"command must be a list of the program and its arguments, got {command!r}")
    if command is None and port == 0:
        raise ValueError("port must be given with command=None: a program that is started elsewhere needs to know it")
    check_number("timeout_s", timeout_s, above=0)
    for key in ("openGymPort", "simSeed"):
        if sim_args is not None and key in sim_args:
            raise ValueError(f"sim_args must not have {key!r}: port, sim_seed and reset(seed=…) give it")


def _arguments(sim_args: Mapping[str, Any]) -> list[str]:
    # ns-3 reads true and false, not Python's True and False.
    return [f"--{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in sim_args.items()]


def _bind_error(port: int, error: zmq.ZMQError) -> str:
    if error.errno == zmq.EADDRINUSE:
        return f"port {port} is already in use: choose another, or 0 for a free one"
    return f"port {port} cannot be listened on: {error.strerror}"

"""The seam between an environment and a simulator: what an engine does, and which engines there are.

An engine is a folder of its own with a class that implements `Engine`, and one line in `bbrgym.envs.register_engines`.
Commands, environments, benchmarks and studies make it by its name; tests/contract/test_engine.py is what it must pass.
The drawing in `bbrgym.envs.episode` shows how environments call it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from bbrgym.baselines import registry
from bbrgym.baselines.controller_file import compile_controller, content_of
from bbrgym.baselines.policy_file import KERNEL_REFERENCE, policy_bytes
from bbrgym.checks import check_integer, check_keys, check_name
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.scenario import Flow, Scenario

Method = TypeVar("Method", bound=Callable[..., Any])

_LONGEST_STEP_NS: Final = 2.0**62
"""Longer steps are cut to this, so that engines can add them to their time in 64 bits."""


@dataclass(frozen=True)
class Rows:
    """What one step of an engine measured.

    Attributes:
        time_s: simulated time at the end of the step, in s.
        flows: shape (number of flows, number of `FLOW_COLUMNS`), float64.
        link: shape (number of `LINK_COLUMNS`,), float64.
        is_over: the scenario's duration has passed, or every flow has delivered all its bytes.
        is_complete: every flow was finite and has delivered all its bytes.
    """

    time_s: float
    flows: npt.NDArray[np.float64]
    link: npt.NDArray[np.float64]
    is_over: bool
    is_complete: bool

    def flow(self, index: int) -> dict[str, float]:
        """Return the row of one flow as {column: value}."""
        return dict(zip(FLOW_COLUMNS, self.flows[index].tolist(), strict=True))

    def link_row(self) -> dict[str, float]:
        """Return the row of the link as {column: value}."""
        return dict(zip(LINK_COLUMNS, self.link.tolist(), strict=True))


class OneThread:
    """Lets one thread at a time into `with` blocks on it, and refuses others at once.

    Raises:
        RuntimeError: on entering, in the middle of another thread's block.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "another thread is in the middle of a call of this engine or environment: use it from one thread at a "
                "time, and make one for each thread that works at the same time"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return OneThread, ()  # a copy is used on its own


def in_one_thread(method: Method) -> Method:
    """Run a method of an object in a block on its `_one_thread`."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._one_thread:
            return method(self, *args, **kwargs)

    return cast(Method, call)


class EngineError(RuntimeError):
    """An engine failed: its process died, hung, or refused. The message has the cause and what it last printed."""


class EngineUnavailableError(EngineError):
    """This machine cannot run the engine, whatever the scenario. The message says what is missing and what to do."""


@dataclass(frozen=True)
class EngineDescription:
    """What others need to know of an engine, known without making one.

    Attributes:
        title: what tables and plots call it.
        comparators: algorithms beside `bbrgym.controllers()` that it runs, of `registry.COMPARATORS`.
        options: what decides its numbers, by name: options, and facts of this machine such as the kernel. Others (a
            time limit, threads) do not.
        extensions: compiled modules beside `bbrgym._controllers` that decide its numbers.
        distributions: installed distributions whose versions decide its numbers.
        install: what to do where an extension is missing.
        remedy: what to do where the worker reports that it cannot run; "" if its reports say it.
        runs_commands: whether it runs flows of the algorithm `command`.
        has_kernel: whether it has the transport `kernel`.
        is_real_time: a step takes as long as it says, and the same seed gives other rows each time: only the random
            draws of the link are equal. Run one at a time, on a machine that is otherwise idle.
    """

    title: str
    comparators: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    extensions: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    install: str = "install bbrgym again"
    remedy: str = ""
    runs_commands: bool = False
    has_kernel: bool = False
    is_real_time: bool = False

    def check_is_installed(self) -> None:
        """Check that the extensions are installed.

        Raises:
            EngineUnavailableError: one is missing; the message says what to do.
        """
        if missing := [module for module in self.extensions if importlib.util.find_spec(module) is None]:
            raise EngineUnavailableError(f"engine {self.title} needs {', '.join(missing)}: {self.install}")


class Engine(ABC):
    """Simulates one scenario at a time. Everything follows from `reset(scenario, seed)`, the gains and the steps.

    `begin_…` sends a request and `finish_…` waits for its answer, so that one thread can keep several engines busy;
    `reset` and `step` do both. An error of a simulator is an `EngineError` and loses the episode; `reset` starts
    afresh. A call that is out of order or has a bad argument changes nothing, nor does one in the middle of another
    thread's call.

    A subclass implements the methods with an underscore. They are called in order, with checked arguments.
    """

    description: EngineDescription
    """Of the class: with the default options. Of an engine: with its own."""

    _scenario: Scenario | None = None
    _rows: Rows | None = None
    _pending: Literal["reset", "step"] | None = None
    _is_closed = False
    _one_thread: OneThread

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Make an engine; subclasses need not call `__init__`."""
        engine = super().__new__(cls)
        engine._one_thread = OneThread()
        return engine

    @classmethod
    def describe(cls, **options: Any) -> EngineDescription:
        """Return the description of the engine with these options.

        Raises:
            ValueError: an option is bad.
        """
        return cls.description

    @property
    def timing(self) -> Mapping[str, float]:
        """How late a simulator in real time was since the episode began, by name; {} in simulated time."""
        return {}

    @property
    def flaw(self) -> str | None:
        """Why the rows since the episode began are not what the scenario says, in words; None if they are.

        Only real time has flaws. Whoever compares rows repeats such an episode, or leaves it out and says so.
        """
        return None

    @in_one_thread
    def begin_reset(self, scenario: Scenario, seed: int) -> None:
        """Start a new episode; a running one is abandoned.

        Args:
            scenario: what to simulate.
            seed: in [0, 2**64); decides everything random.

        Raises:
            ValueError: a bad seed, an algorithm that this engine does not have, or a policy that cannot be read.
            FileNotFoundError: a flow's policy does not exist.
            RuntimeError: a request is pending, or the engine is closed.
            EngineError: the simulator failed.
        """
        self._check_is_idle("begin_reset")
        seed = check_integer("seed", seed, at_least=0, below=2**64)
        check_algorithms(scenario, self.description)
        policies = read_policies(scenario)
        with self._losing_episode_on_error():
            self._request_reset(scenario, seed, policies)
        self._scenario, self._rows, self._pending = scenario, None, "reset"

    def finish_reset(self) -> Rows:
        """Wait for the reset and return the rows at time 0: all counts are zero, and there are no samples.

        Raises:
            RuntimeError: no reset is pending.
            EngineError: the simulator failed or refused the scenario.
        """
        return self._finish("reset")

    @in_one_thread
    def steer(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        """Set the gains of an agent flow from the next step on; they hold until changed. Its controller clamps them.

        Args:
            flow: index of a flow whose algorithm is `agent`.
            cwnd_gain: congestion window in multiples of the estimated bandwidth-delay product.
            pacing_gain: pacing rate in multiples of the estimated bandwidth.

        Raises:
            ValueError: the flow is not an agent's, or a gain is not a finite number > 0.
            RuntimeError: there is no episode.
        """
        if self._scenario is None:
            raise RuntimeError("steer() before reset()")
        agents = self._scenario.agent_flows
        if flow not in agents:
            raise ValueError(f"flow must be an agent's ({', '.join(map(str, agents)) or 'there is none'}), got {flow}")
        if not (0 < cwnd_gain < math.inf and 0 < pacing_gain < math.inf):
            raise ValueError(f"gains must be finite numbers > 0, got ({cwnd_gain!r}, {pacing_gain!r})")
        self._set_gains(int(flow), float(cwnd_gain), float(pacing_gain))

    @in_one_thread
    def begin_step(self, duration_ms: float) -> None:
        """Simulate `duration_ms` more, or less if the scenario ends before.

        Args:
            duration_ms: length of the step, in ms; rounded to ns.

        Raises:
            ValueError: it is not a finite number > 0.
            RuntimeError: a request is pending, no episode is running, or the engine is closed.
            EngineError: the simulator failed.
        """
        self._check_is_idle("begin_step")
        if self._rows is None:
            raise RuntimeError("begin_step() without an episode: reset first")
        if self._rows.is_over:
            raise RuntimeError(f"begin_step() after the end of the episode at {self._rows.time_s:g} s: reset first")
        duration_ns = whole_nanoseconds(duration_ms)
        with self._losing_episode_on_error():
            self._request_step(duration_ns)
        self._pending = "step"

    def finish_step(self) -> Rows:
        """Wait for the step and return its rows.

        Raises:
            RuntimeError: no step is pending.
            EngineError: the simulator failed.
        """
        return self._finish("step")

    def reset(self, scenario: Scenario, seed: int) -> Rows:
        """Start a new episode and return its rows at time 0; see `begin_reset`."""
        self.begin_reset(scenario, seed)
        return self.finish_reset()

    def step(self, duration_ms: float) -> Rows:
        """Simulate a step and return its rows; see `begin_step`."""
        self.begin_step(duration_ms)
        return self.finish_step()

    def rows(self) -> Rows:
        """Return the rows of the last reset or step.

        Raises:
            RuntimeError: there are none.
        """
        if self._rows is None:
            raise RuntimeError("rows() without an episode: reset first")
        return self._rows

    @in_one_thread
    def close(self) -> None:
        """Free everything it holds; calling it twice is fine."""
        self._is_closed = True
        self._forget_episode()
        self._release()

    @abstractmethod
    def _request_reset(self, scenario: Scenario, seed: int, policies: Mapping[int, bytes]) -> None:
        """Ask for an episode. `_rows` still has the rows of the last one; None after an error."""

    @abstractmethod
    def _request_step(self, duration_ns: int) -> None:
        """Ask for a step of at least 1 ns."""

    @abstractmethod
    def _finish_request(self, scenario: Scenario) -> Rows:
        """Wait for what was asked for and return its rows, in arrays that are never written again."""

    @abstractmethod
    def _set_gains(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        """Set the gains of an agent flow."""

    @abstractmethod
    def _release(self) -> None:
        """Free everything, after an error, after an interrupt and to close; a reset may follow."""

    def _check_process(self) -> None:  # noqa: B027  # most simulators are in this process, and copied by a fork
        """Raise RuntimeError in a fork of the process whose child the simulator is."""

    @in_one_thread
    def _finish(self, request: Literal["reset", "step"]) -> Rows:
        self._check_process()
        if self._pending != request or self._scenario is None:
            pending = "" if self._pending is None else f" while a {self._pending} is pending"
            raise RuntimeError(f"finish_{request}(){pending} without begin_{request}()")
        with self._losing_episode_on_error():
            self._rows = self._finish_request(self._scenario)
        self._pending = None
        return self._rows

    def _check_is_idle(self, call: str) -> None:
        if self._is_closed:
            raise RuntimeError(f"{call}() on a closed engine")
        self._check_process()
        if self._pending is not None:
            raise RuntimeError(f"{call}() while a {self._pending} is pending: call finish_{self._pending}() first")

    @contextlib.contextmanager
    def _losing_episode_on_error(self) -> Iterator[None]:
        # Also after an interrupt from the keyboard: the answer that was not waited for must not be taken for the next.
        try:
            yield
        except BaseException:
            self._forget_episode()
            self._release()
            raise

    def _forget_episode(self) -> None:
        self._scenario = self._rows = self._pending = None


def check_algorithms(scenario: Scenario, engine: EngineDescription) -> None:
    """Check that an engine has the algorithms of all flows."""
    for index, flow in enumerate(scenario.flows):
        if flow.algorithm == registry.COMMAND and not engine.runs_commands:
            raise ValueError(f"flows[{index}]: a flow 'command' needs engine Linux, got engine {engine.title}")
        if flow.transport == "kernel" and not engine.has_kernel:
            raise ValueError(f"flows[{index}]: transport 'kernel' needs engine Linux, got engine {engine.title}")
        if flow.algorithm in registry.COMPARATORS and flow.algorithm not in engine.comparators:
            options = "".join(f" with {name}={value!r}" for name, value in engine.options.items())
            known = [*registry.controllers(), *engine.comparators]
            raise ValueError(
                f"flows[{index}]: engine {engine.title}{options} has no algorithm {flow.algorithm!r} "
                f"({registry.COMPARATORS[flow.algorithm]}); known: {', '.join(known)}"
            )


def read_policies(scenario: Scenario) -> dict[int, bytes]:
    """Return what the flows of algorithm `policy` run, by their index, as C++ parses it."""
    return {
        index: policy_bytes(flow.policy or (KERNEL_REFERENCE if flow.transport == "kernel" else None))
        for index, flow in enumerate(scenario.flows)
        if flow.algorithm == "policy"
    }


def hash_policies(scenario: Scenario) -> dict[int, str]:
    """Return the SHA-256 of what decides the gains of each flow of algorithm `policy`, by its index."""
    return {index: hashlib.sha256(policy).hexdigest() for index, policy in read_policies(scenario).items()}


def identity_of(scenario: Scenario) -> dict[str, Any]:
    """Return what decides a scenario: `Scenario.to_dict()` with hashes of policies and C files in place of their paths.

    Results that are kept by it are not those of a file that has changed since.
    """
    plain = scenario.to_dict()
    for index, policy in hash_policies(scenario).items():
        plain["flows"][index]["policy"] = policy
    for index, flow in enumerate(scenario.flows):
        if flow.file is not None:
            plain["flows"][index]["file"] = content_of(flow.file)
    return plain


def with_compiled_files(scenario: Scenario) -> dict[str, Any]:
    """Return `Scenario.to_dict()` with the paths of shared objects in place of those of C files."""
    plain = scenario.to_dict()
    for index, flow in enumerate(scenario.flows):
        if flow.file is not None:
            plain["flows"][index]["file"] = str(compile_controller(flow.file))
    return plain


def whole_nanoseconds(duration_ms: float) -> int:
    """Return the length of a step in ns, at least 1.

    Raises:
        ValueError: it is not a finite number > 0.
    """
    if not 0 < duration_ms < math.inf:
        raise ValueError(f"duration_ms must be a finite number > 0, got {duration_ms!r}")
    return max(1, round(min(duration_ms * 1e6, _LONGEST_STEP_NS)))


@dataclass(frozen=True)
class RegisteredEngine:
    """Where an engine is, as "module:name", so that its module is loaded when it is first used.

    Attributes:
        entry_point: the subclass of `Engine`.
        batch_entry_point: a `bbrgym.envs.engine_batch.EngineBatch` that simulates many scenarios in one process, made
            with `(count, max_flows, **options)`; None runs separate engines.
    """

    entry_point: str
    batch_entry_point: str | None = None


ENGINES: Final[dict[str, RegisteredEngine]] = {}
"""The registered engines by name."""

DEFAULT_ENGINE: Final = "native"
"""What simulates where no engine is named. "ns3" is the reference, and hundreds of times slower."""


def register_engine(name: str, entry_point: str, batch_entry_point: str | None = None) -> None:
    """Register an engine, for `make_engine` and everything that takes an engine's name; see `RegisteredEngine`."""
    ENGINES[name] = RegisteredEngine(entry_point, batch_entry_point)


def describe_engine(name: str, **options: Any) -> EngineDescription:
    """Return the description of the engine called `name` with these options.

    Raises:
        ValueError: there is no such engine, or an option is unknown or bad.
    """
    return _engine_class(name, options).describe(**options)


def make_engine(name: str, **options: Any) -> Engine:
    """Make the engine called `name`.

    Args:
        name: one of `ENGINES`: "native", "ns3", "linux".
        options: passed to the engine's constructor.

    Raises:
        ValueError: there is no such engine, or an option is unknown or bad.
        EngineUnavailableError: it is not installed; the message says what to do.
    """
    return _engine_class(name, options)(**options)


def check_is_available(name: str, **options: Any) -> None:
    """Check that this machine can run an engine, by beginning an episode; arguments as of `make_engine`.

    Raises:
        EngineUnavailableError: it cannot; the message says what is missing and what to do.
    """
    with contextlib.closing(make_engine(name, **options)) as engine:
        engine.reset(Scenario(flows=(Flow("bbr"),)), seed=1)


def load_entry_point(entry_point: str) -> Callable[..., Any]:
    """Import what "module:name" says."""
    module, _, name = entry_point.partition(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return loaded


def _engine_class(name: str, options: Mapping[str, Any]) -> type[Engine]:
    check_name("engine", name, ENGINES)
    engine_class = load_entry_point(ENGINES[name].entry_point)
    if not (isinstance(engine_class, type) and issubclass(engine_class, Engine)):
        raise TypeError(f"{ENGINES[name].entry_point} must be a subclass of Engine, got {engine_class!r}")
    # Python before 3.11.4 takes the signature of `__new__` for a class that inherits both.
    _, *parameters = inspect.signature(engine_class.__init__).parameters.values()
    known = [it.name for it in parameters if it.kind not in (it.VAR_POSITIONAL, it.VAR_KEYWORD)]
    check_keys(f"engine {name!r}", options, known)
    return engine_class

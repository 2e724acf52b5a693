"""Kill processes at random moments, and check that every call returns in time, nothing is left, and results heal.

    make storm ARGS="--kills 1000 --seed 1"

A process that serves an environment of this process gets a random signal (KILL, SEGV, TERM, STOP) in a random phase
(start, reset, step, idle, close) of an engine alone or of a vector environment, over ns-3 or, where this machine can
run it, over the kernel's network stack.

What must hold:
    limit       every call returns, or fails with EngineError, within its documented limit (and `--slack`)
    error       no other exception, and none that no kill explains
    heal        after a kill one reset succeeds
    result      what follows is bit-identical to an undisturbed run (in real time, that it follows)
    left        nothing is left when all is closed: processes, descriptors, threads, sockets, files

`--only N` repeats one case: it has random numbers of its own.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from waiting import is_running, wait_for

from bbrgym.envs.engine import EngineError, EngineUnavailableError, make_engine
from bbrgym.envs.ns3.engine import Ns3Engine
from stress.forms import FORMS, ONE, STEP_MS, Form
from stress.resources import Held, Watch, children_of

PHASES: Final = ("start", "reset", "step", "idle", "close")
SIGNALS: Final = (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGSTOP)
_SIGNAL_WEIGHTS: Final = (4, 3, 3, 1)
"""A stopped worker costs its whole time limit."""


_SHARE_OF_LINUX: Final = 0.05
"""Of the cases."""

_LONGEST_DELAY_S: Final = {"start": 0.25, "reset": 0.01, "step": 0.02, "close": 0.003}
"""Kills come up to this long after the beginning of a phase: about its length, so that some come just after it."""


_HEALS: Final = 4
"""Resets that are tried after a kill; more than one is a violation."""


@dataclass
class Limits:
    """How long calls may take, in s.

    Attributes:
        timeout_s: the engines' `timeout_s`.
        start_s: limit of a worker's start, in addition.
        slack_s: what a busy machine may add to any limit, and how long processes may take to notice an end.
    """

    timeout_s: float = 2.0
    start_s: float = 10.0
    slack_s: float = 5.0

    @property
    def options(self) -> dict[str, float]:
        """The engines' options."""
        return {"timeout_s": self.timeout_s, "start_limit_s": self.start_s}

    def of(self, call: str) -> float:
        """Return the limit of a call: `start` and `reset` may need a worker, and wait for one that was stopped."""
        return {
            "start": self.start_s + self.timeout_s,
            "reset": self.start_s + 2 * self.timeout_s,
            "step": self.timeout_s + Ns3Engine.limit_per_simulated_s * STEP_MS / 1e3,
        }.get(call, 0.0) + self.slack_s


@dataclass
class Storm:
    """The cases of a storm, which its seed decides. Moments of kills also depend on the machine."""

    seed: int
    limits: Limits
    forms: Mapping[str, type[Form]]
    watch: Watch
    has_linux: bool = False

    def __post_init__(self) -> None:
        self.kills: Counter[str] = Counter()
        """By form, phase and signal."""
        self.violations: list[tuple[str, str]] = []
        self._others = set(children_of(os.getpid()))
        self._case = ""
        self._expected: dict[tuple[str, str], str] = {}

    def warm_up(self) -> None:
        """Use every form once: what a process has once, it has then."""
        for name in self.forms:
            for engine in ("ns3", "linux") if self.has_linux else ("ns3",):
                self._undisturbed(name, engine)

    def run(self, index: int) -> None:
        """Run one case."""
        rng = random.Random(f"{self.seed} {index}")
        engine = "linux" if self.has_linux and rng.random() < _SHARE_OF_LINUX else "ns3"
        name, phase = rng.choice(list(self.forms)), rng.choice(PHASES)
        number = rng.choices(SIGNALS, _SIGNAL_WEIGHTS)[0]
        self._case = f"case {index} ({name}, {phase}, {number.name})"
        form = self.forms[name]
        expected = self._undisturbed(name, engine)
        before = self.watch.held()
        env = form(engine, self.limits.options)
        if phase != "start":
            env.reset(1)
        calls: dict[str, Callable[[], object]] = {
            "start": partial(env.reset, 1),
            "reset": partial(env.reset, 2),
            "step": env.step,
            "close": env.close,
        }
        is_lost = False
        with self._killing(phase, number, rng) as killed:
            if phase in calls:
                is_lost = self._call(phase, calls[phase])
        if phase == "close":
            if is_lost:
                self._violate("error", "close raised an error")
            env = form(engine, self.limits.options)
        elif not is_lost and rng.random() < 0.5:
            self._call("step", env.step)  # else the reset is the first call that meets the dead worker
        resets = 1
        while self._call("reset", partial(env.reset, 3)) and resets < _HEALS:
            resets += 1
        if resets > 1:
            self._violate("heal", f"{resets} resets")
        self._compare(expected, partial(env.rollout, 7))
        self._call("close", env.close)
        if killed:
            self.kills[f"{name}, {phase}, {number.name}"] += 1
        self._check_left(before)

    @contextlib.contextmanager
    def _killing(self, phase: str, number: signal.Signals, rng: random.Random) -> Iterator[list[int]]:
        """Send the signal to a child of this process, in the middle of the block, or before it when idle or closing.

        The list has the child in the end, if there was one.
        """
        delay_s = rng.uniform(0, _LONGEST_DELAY_S.get(phase, 0.0))
        which = rng.random()
        killed: list[int] = []

        def kill() -> None:
            deadline = time.monotonic() + self.limits.start_s
            while not (first := self._workers()) and phase == "start" and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(delay_s)
            victims = self._workers() or first
            if not victims:  # the call has already ended them
                return
            victim = victims[int(which * len(victims))]
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, number)
                killed.append(victim)
            if phase == "idle" and number != signal.SIGSTOP:
                wait_for(lambda: not is_running(victim))

        with ThreadPoolExecutor(1) as pool:
            killing = pool.submit(kill)
            if phase == "idle" or (phase == "close" and rng.random() < 0.5):
                killing.result()
            yield killed

    def _workers(self) -> list[int]:
        return [pid for pid in children_of(os.getpid()) if pid not in self._others]

    def _undisturbed(self, name: str, engine: str) -> str:
        """Return the digest of an undisturbed rollout; the first one also holds what a process has once."""

        if (engine, name) not in self._expected:
            with contextlib.closing(self.forms[name](engine, {"timeout_s": 30.0})) as env:
                self._expected[engine, name] = env.rollout(7)
        return self._expected[engine, name]

    def _call(self, name: str, call: Callable[[], object]) -> bool:
        """Make a call, check its time, and return whether it failed with EngineError."""
        began = time.monotonic()
        is_lost = True
        try:
            call()
            is_lost = False
        except EngineError:
            pass
        except Exception as error:
            self._violate("error", f"{name} raised {type(error).__name__}: {error}")
        took_s = time.monotonic() - began
        if took_s > self.limits.of(name):
            self._violate("limit", f"{name} took {took_s:.1f} s, its limit is {self.limits.of(name):.1f} s")
        return is_lost

    def _compare(self, expected: str, result: Callable[[], str]) -> None:
        try:
            found = result()
        except Exception as error:
            self._violate("error", f"{type(error).__name__} after the heal: {error}")
            return
        if found != expected:
            self._violate("result", f"expected {expected}, got {found}")

    def _check_left(self, before: Held) -> None:
        more = self.watch.left(before, self.limits.slack_s)
        if not more:
            return
        self._violate("left", "; ".join(f"{kind}: {what}" for kind, what in more.items()))
        for pid in self.watch.held().processes - before.processes:  # so that no later case takes them for its own
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _violate(self, rule: str, what: str) -> None:
        self.violations.append((rule, f"{self._case}: {what}"))
        print(f"VIOLATION {rule}: {self._case}: {what}", flush=True)


def _has_linux() -> bool:
    """Return whether this machine can run the engine on the kernel's network stack."""
    try:
        with contextlib.closing(make_engine("linux")) as engine:
            engine.reset(ONE, 1)
    except EngineUnavailableError as error:
        print(f"no kills over linux: {error}")
        return False
    return True


def main() -> int:
    """Run a storm and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="default: 1000")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--only", type=int, help="repeat this case")
    parser.add_argument("--slack", type=float, default=5.0, help="seconds that a busy machine may add; default: 5")
    options = parser.parse_args()
    limits = Limits(slack_s=options.slack)
    print(f"storm: seed {options.seed}, {options.kills} kills")
    with tempfile.TemporaryDirectory(prefix="bbrgym-storm-") as folder:
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        storm = Storm(seed=options.seed, limits=limits, forms=FORMS, watch=Watch(temporary), has_linux=_has_linux())
        began, index = time.monotonic(), 0
        if options.only is not None:
            storm.run(options.only)
            index = 1
        else:
            storm.warm_up()
            while storm.kills.total() < options.kills:
                storm.run(index)
                index += 1
        for what, count in storm.kills.most_common():
            print(f"{count} kills: {what}")
        print(f"seed {options.seed}, {index} cases in {time.monotonic() - began:.0f} s")
    if storm.violations:
        print(f"FAILED: {len(storm.violations)} violations; repeat one with --seed {options.seed} --only CASE")
    return bool(storm.violations)


if __name__ == "__main__":
    sys.exit(main())

"""Kill processes at random moments, and check that every call returns in time, nothing is left, and results heal.

    make storm ARGS="--kills 1000 --seed 1"

Five kinds of kills, each with a random signal (KILL, SEGV, TERM, STOP). Those of workers and parents come in a random
phase (start, reset, step, idle, close) of a random form of the environment (engine, single, vector, VecEnv, parallel).
The engine is ns-3, where nothing else is said:

    worker      a process that serves an environment of this process
    parent      the process that uses an environment
    benchmark   a benchmark, or one of its workers; it is then resumed
    training    a training, over ns-3 or native; it is then resumed
    linux       a worker or a parent of the engine on the kernel's network stack, where this machine can run it

What must hold:
    limit       every call returns, or fails with EngineError, within its documented limit (and `--slack`)
    error       no other exception, and none that no kill explains
    heal        after a kill one reset succeeds
    result      what follows is bit-identical to an undisturbed run (in real time, that it follows)
    left        nothing is left when all is closed: processes, descriptors, threads, sockets, shared memory, files

`--only N` repeats one case: it has random numbers of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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

KINDS: Final[dict[str, float]] = {
    "worker": 0.71,
    "parent": 0.19,
    "benchmark": 0.03,
    "training": 0.02,
    "linux": 0.05,
}
"""The share of each kind in the kills."""

_LONGEST_DELAY_S: Final = {"start": 0.25, "reset": 0.01, "step": 0.02, "close": 0.003}
"""Kills come up to this long after the beginning of a phase: about its length, so that some come just after it."""

_RUN_LIMIT_S: Final = 240.0
"""Limit of a whole benchmark or training, which take a few seconds."""

_KILLS_OF_A_RUN: Final = 4
"""How often a benchmark or a training is killed before it is left to end."""

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
            "close": 0.0,
        }[call] + self.slack_s


@dataclass
class Report:
    """What a storm has seen."""

    kills: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    """By kind, form, phase and signal."""
    slowest_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By call."""
    resets: Counter[int] = field(default_factory=Counter)
    """How many resets a heal took."""
    healed: int = 0
    """Results that were equal to the undisturbed ones."""
    violations: list[tuple[str, str]] = field(default_factory=list)
    """The rule, and what happened."""


class Storm:
    """The cases of a storm.

    Args:
        seed: decides the cases. Moments of kills also depend on the machine.
        limits: of the calls.
        forms: the forms of the environment to choose from.
        watch: finds what is left.
        kinds: the share of each kind in the kills.
    """

    def __init__(
        self,
        seed: int,
        limits: Limits,
        forms: Mapping[str, type[Form]],
        watch: Watch,
        kinds: Mapping[str, float] = KINDS,
    ) -> None:
        self.report = Report()
        self._seed = seed
        self._limits = limits
        self._forms = forms
        self._watch = watch
        self._kinds = kinds
        self._expected: dict[str, str] = {}
        self._seconds: dict[str, float] = {}
        self._others = set(children_of(os.getpid()))
        self._case = ""

    def warm_up(self) -> None:
        """Use every form once: what a process has once, it has then."""
        for name in self._forms:
            self._undisturbed(name, "ns3")
            if "linux" in self._kinds:
                self._undisturbed(name, "linux")

    def run(self, index: int, kind: str | None = None) -> None:
        """Run one case."""
        rng = random.Random(f"{self._seed} {index}")
        shares = [
            share / (_KILLS_OF_A_RUN if name in ("benchmark", "training") else 1) for name, share in self._kinds.items()
        ]
        drawn = rng.choices(list(self._kinds), shares)[0]
        kind = kind or drawn
        self._case = f"case {index} ({kind})"
        cases = {"worker": self._worker, "parent": self._parent, "linux": self._linux}
        cases.get(kind, self._resumed)(kind, rng)

    def _linux(self, kind: str, rng: random.Random) -> None:
        rng.choice([self._worker, self._parent])(kind, rng, "linux")

    # --- kills of workers ------------------------------------------------------------------------------------------

    def _worker(self, kind: str, rng: random.Random, engine: str = "ns3") -> None:
        name, phase, number = self._draw(rng)
        form = self._forms[name]
        expected = self._undisturbed(name, engine)
        before = self._watch.held()
        env = form(engine, self._limits.options)
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
            env = form(engine, self._limits.options)
        elif not is_lost and rng.random() < 0.5:
            self._call("step", env.step)  # else the reset is the first call that meets the dead worker
        resets = 1
        while self._call("reset", partial(env.reset, 3)) and resets < _HEALS:
            resets += 1
        self.report.resets[resets] += 1
        if resets > 1:
            self._violate("heal", f"{resets} resets")
        self._compare(expected, partial(env.rollout, 7))
        self._call("close", env.close)
        if killed:
            self._count(kind, name, phase, number)
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
            deadline = time.monotonic() + self._limits.start_s
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

        if phase == "idle" or (phase == "close" and rng.random() < 0.5):
            kill()
            yield killed
            return
        thread = threading.Thread(target=kill)
        thread.start()
        try:
            yield killed
        finally:
            thread.join()

    def _workers(self) -> list[int]:
        return [pid for pid in children_of(os.getpid()) if pid not in self._others]

    # --- kills of parents ------------------------------------------------------------------------------------------

    def _parent(self, kind: str, rng: random.Random, engine: str = "ns3") -> None:
        name, phase, number = self._draw(rng)
        before = self._watch.held()
        with _program("parent", engine, name, str(self._limits.timeout_s)) as process:
            assert process.stdout is not None
            digest = self._digest_of_parent(engine, name)
            times = rng.randint(1, 2)
            for line in process.stdout:
                times -= line.strip() == phase.encode()
                if times == 0:
                    break
            time.sleep(rng.uniform(0, _LONGEST_DELAY_S.get(phase, 0.1)))
            if process.poll() is None:
                process.send_signal(number)
                self._count(kind, name, phase, number)
            if number == signal.SIGSTOP:
                time.sleep(rng.uniform(0, 1.5 * self._limits.timeout_s))
                process.send_signal(signal.SIGCONT)
                output = self._output(process)
                if f"digest {digest}" not in output:
                    self._violate("result", f"a parent that was stopped and continued printed {output[-300:]!r}")
                else:
                    self.report.healed += 1
            else:
                self._output(process)
        self._check_left(before)

    def _digest_of_parent(self, engine: str, name: str) -> str:
        key = f"parent {engine} {name}"
        if key not in self._expected:
            with _program("parent", engine, name, "30") as process:
                self._expected[key] = self._output(process).split()[-1]
        return self._expected[key]

    # --- kills of benchmarks and trainings, which are resumed ------------------------------------------------------

    def _resumed(self, kind: str, rng: random.Random) -> None:
        before = self._watch.held()
        options = [rng.choice(["native", "ns3"])] if kind == "training" else []
        with tempfile.TemporaryDirectory(prefix="storm-", dir=self._watch.folder.parent) as folder:
            expected, seconds = self._undisturbed_run(kind, f"{folder}/undisturbed", options)
            target = Path(folder) / "disturbed"
            for _ in range(_KILLS_OF_A_RUN):
                with _program(kind, str(target), *options) as process:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(rng.uniform(0.1, 1.0) * seconds)
                    if process.poll() is None:
                        self._disturb(kind, process, rng)
                    self._output(process)
                self._check_left(before)
            with _program(kind, str(target), *options) as process:
                output = self._output(process)
            result = _result(output) if process.returncode == 0 else f"status {process.returncode}: {output[-800:]}"
            self._compare(expected, lambda: result)
            if unfinished := [path.name for path in target.rglob("*.partial")]:
                self._violate("left", f"in a resumed and complete {kind}: {', '.join(unfinished)}")
        self._check_left(before)

    def _disturb(self, kind: str, process: subprocess.Popen[bytes], rng: random.Random) -> None:
        """Kill a run, or a worker of a benchmark, which must cost no more than the worker's own run."""
        # A training whose worker dies counts a failure of an engine, after which its numbers are others.
        workers = children_of(process.pid) if kind == "benchmark" else []
        victim = rng.choice([process.pid, rng.choice(workers)]) if workers else process.pid
        number = rng.choices(SIGNALS, _SIGNAL_WEIGHTS)[0]
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, number)
            self._count(kind, "itself" if victim == process.pid else "worker", "run", number)
            if number == signal.SIGSTOP:
                time.sleep(rng.uniform(0, 1))
                os.kill(victim, signal.SIGCONT)
        if victim == process.pid and number != signal.SIGSTOP:
            return
        output = self._output(process)
        if process.returncode != 0:
            self._violate("error", f"status {process.returncode} after {number.name}: {output[-600:]}")
        elif (lost := int(output.split()[-3])) > (number != signal.SIGSTOP):
            self._violate("error", f"{number.name} to one worker cost {lost} runs")

    def _undisturbed_run(self, kind: str, folder: str, options: list[str]) -> tuple[str, float]:
        """Return the result of a run that is left alone, and how long it takes."""
        key = f"{kind} {options}"
        if key not in self._expected:
            began = time.monotonic()
            with _program(kind, folder, *options) as process:
                output = self._output(process)
            if process.returncode != 0:
                raise SystemExit(f"an undisturbed {kind} fails: {output[-800:]}")
            self._expected[key] = _result(output)
            self._seconds[key] = time.monotonic() - began
        return self._expected[key], self._seconds[key]

    # --- what all share --------------------------------------------------------------------------------------------

    def _draw(self, rng: random.Random) -> tuple[str, str, signal.Signals]:
        name, phase = rng.choice(list(self._forms)), rng.choice(PHASES)
        number = rng.choices(SIGNALS, _SIGNAL_WEIGHTS)[0]
        self._case = f"{self._case[:-1]}, {name}, {phase}, {number.name})"
        return name, phase, number

    def _undisturbed(self, name: str, engine: str) -> str:
        """Return the digest of an undisturbed rollout; the first one also holds what a process has once."""
        key = f"{engine} {name}"
        if key not in self._expected:
            env = self._forms[name](engine, {"timeout_s": 30.0})
            self._expected[key] = env.rollout(7)
            env.close()
        return self._expected[key]

    def _call(self, name: str, call: Callable[[], object]) -> bool:
        """Make a call, check its time, and return whether it failed with EngineError."""
        began = time.monotonic()
        is_lost = False
        try:
            call()
        except EngineError:
            is_lost = True
        except Exception as error:
            self._violate("error", f"{name} raised {type(error).__name__}: {error}")
            is_lost = True
        took_s = time.monotonic() - began
        self.report.slowest_s[name] = max(self.report.slowest_s[name], took_s)
        if took_s > self._limits.of(name):
            self._violate("limit", f"{name} took {took_s:.1f} s, its limit is {self._limits.of(name):.1f} s")
        return is_lost

    def _output(self, process: subprocess.Popen[bytes]) -> str:
        try:
            return process.communicate(timeout=_RUN_LIMIT_S)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            self._violate("limit", f"{process.args!r} did not end within {_RUN_LIMIT_S:g} s")
            process.kill()
            return process.communicate()[0].decode(errors="replace")

    def _compare(self, expected: str, result: Callable[[], str]) -> None:
        try:
            found = result()
        except Exception as error:
            self._violate("error", f"{type(error).__name__} after the heal: {error}")
            return
        if found == expected:
            self.report.healed += 1
        else:
            self._violate("result", f"expected {expected}, got {found}")

    def _count(self, kind: str, form: str, phase: str, number: signal.Signals) -> None:
        self.report.kills[kind, form, phase, number.name] += 1

    def _check_left(self, before: Held) -> None:
        more, took_s = self._watch.left(before, self._limits.slack_s)
        self.report.slowest_s["disappear"] = max(self.report.slowest_s["disappear"], took_s)
        if not more:
            return
        self._violate("left", "; ".join(f"{kind}: {what}" for kind, what in more.items()))
        now = self._watch.held()
        for pid in now.processes - before.processes:  # so that the next case does not find them again
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for path in sorted((self._watch.folder / name for name in now.files - before.files), reverse=True):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()

    def _violate(self, rule: str, what: str) -> None:
        self.report.violations.append((rule, f"{self._case}: {what}"))
        print(f"VIOLATION {rule}: {self._case}: {what}", flush=True)


@contextlib.contextmanager
def _program(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program of `stress.victim`, and end it in any case."""
    command = [sys.executable, "-m", "stress.victim", *arguments]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    # Without a buffer, so that what has been printed when a line is read is still there for `communicate`.
    process = subprocess.Popen(
        command, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _result(output: str) -> str:
    """Return `failures missing digest` of a run that has ended."""
    return " ".join(output.split()[-3:])


def print_report(report: Report, limits: Limits) -> None:
    """Print the figures."""
    total = sum(report.kills.values())
    print(f"\n{total} kills")
    for title, position in (("kind", 0), ("form", 1), ("phase", 2), ("signal", 3)):
        counts: Counter[str] = Counter()
        for key, count in report.kills.items():
            counts[key[position]] += count
        print(f"  by {title}: {', '.join(f'{name} {count}' for name, count in counts.most_common())}")
    for call, seconds in report.slowest_s.items():
        limit = (
            f", limit {limits.of(call):.1f} s" if call != "disappear" else " (processes, files and sockets at the end)"
        )
        print(f"slowest {call}: {seconds:.2f} s{limit}")
    print(f"resets needed to heal: {', '.join(f'{n}: {count} times' for n, count in sorted(report.resets.items()))}")
    print(f"results equal to undisturbed ones: {report.healed}")
    rules = Counter(rule for rule, _ in report.violations)
    for rule, what in {
        "limit": "calls beyond their limit",
        "error": "errors of another kind, or that no kill explains",
        "heal": "heals that took more than one reset",
        "result": "results that differ",
        "left": "times something was left behind",
    }.items():
        print(f"{what}: {rules[rule]}")


def _possible_kinds() -> dict[str, float]:
    """Return the kinds without those that this machine cannot run."""
    try:
        with contextlib.closing(make_engine("linux")) as engine:
            engine.reset(ONE, 1)
    except EngineUnavailableError as error:
        print(f"no kills of kind linux: {error}")
        return {name: share for name, share in KINDS.items() if name != "linux"}
    return KINDS


def main() -> int:
    """Run a storm and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="default: 1000")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--only", type=int, help="repeat this case")
    parser.add_argument("--kind", choices=list(KINDS), help="kills of one kind")
    parser.add_argument("--slack", type=float, default=5.0, help="seconds that a busy machine may add; default: 5")
    options = parser.parse_args()
    limits = Limits(slack_s=options.slack)
    print(f"storm: seed {options.seed}, {options.kills} kills")
    with tempfile.TemporaryDirectory(prefix="bbrgym-storm-") as folder:
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        storm = Storm(options.seed, limits, FORMS, Watch(temporary), _possible_kinds())
        began, index = time.monotonic(), 0
        if options.only is not None:
            storm.run(options.only, options.kind)
            index = 1
        else:
            storm.warm_up()
            while (kills := sum(storm.report.kills.values())) < options.kills:
                storm.run(index, options.kind)
                index += 1
                if index % 50 == 0:
                    print(f"{kills} kills, {time.monotonic() - began:.0f} s", flush=True)
        print_report(storm.report, limits)
        print(f"seed {options.seed}, {index} cases in {time.monotonic() - began:.0f} s")
    if storm.report.violations:
        print(f"FAILED: {len(storm.report.violations)} violations; repeat one with --seed {options.seed} --only CASE")
    return bool(storm.report.violations)


if __name__ == "__main__":
    sys.exit(main())

"""Give damaged and hostile input to everything that reads input from outside.

    make fuzz SECONDS=60 ARGS="--seed 1"

Each target has valid inputs, which are damaged at random (bytes, or values of JSON), and a rule:

    scenario     plain mappings: ValueError with a message, or a scenario that the native engine runs
    messages     spaces and values of the ns3-gym protocol: ValueError or DecodeError, or a value
    client       what a simulation sends to `Ns3GymEnv`: EngineError, or a step, within the time limit
    server       what a client sends to `bbrgym ns3`: EngineError, or the end of the episode, within the time limit
    udp-receiver datagrams to `bbrgym receive`: it serves one who keeps to the rules before, and after them
    udp-sender   what a receiver sends to `bbrgym send`: the flow is as open as before, and can be ended
    policy       the bytes of a policy, in C++: ValueError, or actions within their bounds
    sanitized    the same in a program with the compiler's sanitizers: no report
    agent        files of an agent's folder: ValueError or FileNotFoundError, or an agent; nothing in them is executed
    benchmark    files of a benchmark's folder: ValueError or FileNotFoundError, or results
    checkpoint   files of a training's folder: ValueError, or a state; nothing in them is executed
    import       models of other libraries: ValueError, or an agent; nothing in them is executed

Each target runs in a process of its own, which must not die, and must not take longer than `HANG_S` for one input. An
input that breaks a rule is written to build/fuzz/<target>/ and tried first the next time; `--replay FILE` tries one.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from stress.targets import ROOT, TARGETS, Target

FOLDER: Final = ROOT / "build" / "fuzz"
HANG_S: Final = 60
"""One input takes milliseconds, and seconds on a busy machine."""

_MOST_FINDINGS: Final = 5
"""Findings of one target after which it ends."""


def attack(target: Target, rng: random.Random, found_in: Path, is_over: Callable[[int], bool]) -> tuple[int, list[str]]:
    """Give a target what was found before, its examples, and damaged examples until `is_over(count)`.

    Args:
        target: reads them.
        rng: damages them.
        found_in: where inputs that break the rule are kept, and the one that is being read.
        is_over: whether this many inputs are enough.

    Returns:
        How many inputs were read, and what is wrong, once for each place in the code.
    """
    found_in.mkdir(parents=True, exist_ok=True)
    current = found_in / "current"
    examples = target.examples()
    for example in examples:
        if wrong := _refusal(target, example):
            return 0, [f"a valid input is refused: {wrong}"]
    queue = [path.read_bytes() for path in sorted(found_in.glob("*.bin"))]
    count, found = 0, {}
    while len(found) < _MOST_FINDINGS and not (is_over(count) and not queue):
        data = queue.pop() if queue else target.damage(rng.choice(examples), rng)
        current.write_bytes(data)
        if (wrong := target.check(data)) is not None:
            place = wrong.partition(": ")[0]
            if place not in found:
                found[place] = f"{wrong} (--replay {keep(found_in, data)})"
        count += 1
    current.unlink(missing_ok=True)
    return count, list(found.values())


def _refusal(target: Target, data: bytes) -> str | None:
    try:
        target.read(data)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def keep(found_in: Path, data: bytes) -> Path:
    """Store an input."""
    path = found_in / f"{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.write_bytes(data)
    return path


def supervise(command: Sequence[str], found_in: Path) -> list[str]:
    """Run an attack in a process and return what it found; if it dies or hangs, the input that it was reading is kept.

    The command prints a line for everything it finds, after `FOUND `, and its figures; SIGALRM ends it when it hangs.
    """
    current = found_in / "current"
    current.unlink(missing_ok=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = done.stdout.splitlines()
    found = [line.removeprefix("FOUND ") for line in lines if line.startswith("FOUND ")]
    if done.returncode == 0:
        print(*(line for line in lines if not line.startswith("FOUND ")), sep="\n", flush=True)
        return found
    wrong = f"its process ended with status {done.returncode}: {done.stdout[-400:].strip()}"
    if done.returncode == -signal.SIGALRM:
        wrong = f"it hung for {HANG_S} s"
    if current.exists():
        wrong += f" (--replay {keep(found_in, current.read_bytes())})"
        current.unlink()
    return [wrong, *found]


def main() -> int:
    """Attack all targets and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together; default: 60")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--target", choices=list(TARGETS), action="append", help="only these targets")
    parser.add_argument("--replay", type=Path, help="try one input; its folder is the target's name")
    parser.add_argument("--here", action="store_true", help="attack in this process, and not in one for each target")
    options = parser.parse_args()
    names = options.target or list(TARGETS)
    if options.replay is not None:
        with _target(options.replay.parent.name) as target:
            print(wrong := target.check(options.replay.read_bytes()))
            return wrong is not None
    if options.here:
        logging.disable()
        for name in names:
            rng = random.Random(f"{options.seed} {name}")
            with _target(name) as target:
                end = time.monotonic() + options.seconds / len(names)

                def is_over(_: int, end: float = end) -> bool:
                    signal.alarm(HANG_S)  # ends this process if the next input takes longer
                    return time.monotonic() > end

                count, found = attack(target, rng, FOLDER / name, is_over)
                signal.alarm(0)
            print(f"{name}: {count} inputs, {len(found)} findings", flush=True)
            for line in found:
                print(f"FOUND {' '.join(line.split())}", flush=True)
        return 0
    print(f"fuzz: seed {options.seed}, {options.seconds:g} s")
    failed = False
    for name in names:
        command = [sys.executable, "-m", "stress.fuzz", "--here", "--target", name]
        command += ["--seconds", str(options.seconds / len(names))]
        for line in supervise([*command, "--seed", str(options.seed)], FOLDER / name):
            print(f"VIOLATION {name}: {line}", flush=True)
            failed = True
    print(f"seed {options.seed}")
    return failed


@contextlib.contextmanager
def _target(name: str) -> Iterator[Target]:
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    has_limit = name not in ("sanitized", "checkpoint", "import")  # whose libraries reserve more than there is
    resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30 if has_limit else most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with (
        tempfile.TemporaryDirectory(prefix="bbrgym-fuzz-") as folder,
        contextlib.closing(TARGETS[name](Path(folder))) as target,
    ):
        yield target


if __name__ == "__main__":
    sys.exit(main())

"""Interrupt every command at several moments.

A moment is an event: the process has loaded an extension module, has printed its first line, or has written a file.
Each command must then end with one line, status 130 after SIGINT and 143 after SIGTERM, no traceback, no process left,
and only whole files. At the moment "twice", the signal comes again while the command ends.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from waiting import is_running, wait_for

from bbrgym.baselines.policy_file import REFERENCE

ROOT = Path(__file__).parents[1]
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ATTEMPTS = 10


@dataclass(frozen=True)
class Case:
    """A command.

    Attributes:
        command: what follows `python -m`.
        file: pattern of a file or folder that appears while it works; None if it writes none.
        module: part of the name of an extension module that it loads while it starts.
        has_output: whether it prints a line before it ends.
        resumption: how its line ends, once the file has appeared, if the work can be resumed.
        result: file that it writes last, if it may end before a signal comes.
    """

    command: tuple[str, ...]
    file: str | None = None
    module: str | None = None
    has_output: bool = True
    resumption: str = ""
    result: str | None = None

    @property
    def name(self) -> str:
        return "bbrgym" if self.command[0] == "bbrgym.cli" else self.command[0].removeprefix("studies.")

    @property
    def moments(self) -> tuple[str, ...]:
        moments = [self.module] if self.module else []
        moments += ["line"] if self.has_output else []
        moments += [self.file] if self.file else []
        return (*moments, f"twice {moments[-1]}")


LEARN = (
    "scenario=single",
    "scenario.duration_s=2",
    "agent.n_steps=32",
    "agent.batch_size=32",
    "agent.n_epochs=1",
    "train.n_envs=2",
    "train.eval_episodes=1",
    "train.checkpoint_every=64",
    "train.eval_every=64",
    "train.total_steps=10000000",
)
TRAIN = ("bbrgym.cli", "train", *LEARN)
SWEEP = ("bbrgym.cli", "train", "-m", *LEARN, "seed=1,2", "engine=native", "hydra.sweep.dir=sweep", "tracking=none")
SEEDS = str(list(range(1, 400)))
BENCHMARK = ("bbrgym.cli", "benchmark", "experiment=rtt_fairness", f"benchmark.seeds={SEEDS}")
CHECKPOINT = "checkpoints/0*"
SAME = "the same command resumes it"
RESUME = "`bbrgym train train.resume=run` resumes it"
RUN = "*/runs/*/metrics.json"
TORCH = "libtorch_python"
CASES = {
    "train": Case((*TRAIN, "engine=native", "output_dir=run"), f"run/{CHECKPOINT}", TORCH, resumption=RESUME),
    "train ns-3": Case(
        (*TRAIN, "engine=ns3", "output_dir=run", "tracking=none"), f"run/{CHECKPOINT}", TORCH, resumption=RESUME
    ),
    "train -m": Case(SWEEP, f"sweep/0/{CHECKPOINT}", TORCH, resumption=SAME),
    "train -m local": Case((*SWEEP, "hydra/launcher=local"), f"sweep/*/{CHECKPOINT}", resumption=SAME),
    "train -m optuna": Case(
        (*SWEEP, "hydra/sweeper=optuna", "hydra/launcher=local", "hydra.sweeper.n_trials=4"),
        f"sweep/*/{CHECKPOINT}",
        resumption=SAME,
    ),
    "train -m ray": Case((*SWEEP, "hydra/launcher=ray_local"), f"sweep/*/{CHECKPOINT}", resumption=SAME),
    "train -m slurm": Case(
        (*SWEEP, "hydra/launcher=slurm", "hydra.launcher.cluster=local"), f"sweep/*/{CHECKPOINT}", resumption=SAME
    ),
    "evaluate": Case(
        (
            "bbrgym.cli",
            "evaluate",
            f"agent_path={REFERENCE}",
            "scenario=duel",
            "engine=native",
            f"seeds={SEEDS}",
            "output_dir=out",
            "tracking=none",
        ),
        "out/traces/seed_2.parquet",
        has_output=False,
    ),
    "benchmark": Case((*BENCHMARK, "benchmark.engine=native"), f"runs/benchmark/{RUN}", resumption=SAME),
    "benchmark ray": Case(
        (*BENCHMARK, "benchmark.engine=native", "benchmark/executor=ray", "tracking=none"),
        f"runs/benchmark/{RUN}",
        resumption=SAME,
    ),
    "benchmark dask": Case(
        (*BENCHMARK, "benchmark.engine=native", "benchmark/executor=dask", "tracking=none"),
        f"runs/benchmark/{RUN}",
        resumption=SAME,
    ),
    "benchmark slurm": Case(
        (
            *BENCHMARK,
            "benchmark.engine=native",
            "tracking=none",
            "benchmark/executor=slurm",
            "benchmark.executor.cluster=local",
            "benchmark.executor.workers=2",
            "benchmark.executor.chunk_s=2",
            "benchmark.executor.poll_s=0.2",
        ),
        f"runs/benchmark/{RUN}",
        has_output=False,
        resumption=SAME,
    ),
    "benchmark ns-3": Case(
        (*BENCHMARK, "benchmark.engine=ns3", "tracking=none"), f"runs/benchmark/{RUN}", resumption=SAME
    ),
    "demo": Case(
        ("bbrgym.cli", "demo", "engine=native", "output_dir=run", "train.checkpoint_every=2048", "tracking=none"),
        f"run/{CHECKPOINT}",
        resumption="`bbrgym train train.resume=run` resumes its training",
    ),
    "export": Case(
        ("bbrgym.cli", "export", str(REFERENCE), "agent.onnx"), None, "onnx", has_output=False, result="agent.onnx"
    ),
    "send": Case(("bbrgym.cli", "send", "127.0.0.1:9", "--timeout=600"), None, "_linux", has_output=False),
    "receive": Case(("bbrgym.cli", "receive", "--port=0")),
    "ns3": Case(("bbrgym.cli", "ns3", "--openGymPort=5999", "--simSeed=0"), None, "_zmq"),
    "ui": Case(("bbrgym.cli", "ui", "--port=5998"), "runs/mlflow.db"),
    "atlas": Case(
        ("bbrgym.cli", "atlas", "make", "families", "--levels", "random", "--shards", "0-400", "--folder", "out"),
        "out/random/*.parquet",
        "_native",
        has_output=False,
        resumption=SAME,
    ),
    "papers": Case(("bbrgym.cli", "papers", "acw-jain"), f"runs/papers/*/{RUN}", resumption=SAME),
}


def interrupt(case: Case, number: signal.Signals, moment: str, folder: Path) -> list[str]:
    """Run a command in an empty folder, interrupt it at a moment, and return what is wrong with its end.

    It runs again if it had its result before the signal came.
    """
    for attempt in range(_ATTEMPTS):
        own = folder / str(attempt)
        own.mkdir()
        wrong = _interrupt_once(case, number, moment, own)
        if case.result is None or not (own / case.result).exists():
            return wrong
    return [f"it ended before the signal came, {_ATTEMPTS} times"]


def _interrupt_once(case: Case, number: signal.Signals, moment: str, folder: Path) -> list[str]:
    with (folder / "output").open("wb") as output, (folder / "errors").open("wb") as errors:
        process = psutil.Popen(
            [sys.executable, "-m", *case.command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,  # so that no process of it is missed
        )
    begun = {process.pid: process}
    try:
        begins = moment.removeprefix("twice ")
        wait_for(lambda: _has_come(begins, process.pid, folder) or process.poll() is not None, begins)
        if process.poll() is not None:
            return [f"it ended before the moment, with status {process.returncode}"]
        begun |= {one.pid: one for one in process.children(recursive=True)}
        earlier = (folder / "errors").read_text()
        # As a terminal does: to all processes that are in its foreground. SIGTERM is for the command alone.
        send = os.killpg if number is signal.SIGINT else os.kill
        send(process.pid, number)
        if moment.startswith("twice"):
            send(process.pid, number)
        wait_for(lambda: process.poll() is not None, "its end")
        return [
            *_wrong_end(case, number, moment=begins, status=process.returncode, folder=folder, earlier=earlier),
            *_left_behind(list(begun.values())),
            *_broken_files(folder),
        ]
    finally:
        for one in begun.values():
            if one.is_running():
                one.kill()


def _has_come(moment: str, pid: int, folder: Path) -> bool:
    if moment == "line":
        return any((folder / name).stat().st_size > 0 for name in ("output", "errors"))
    if "/" in moment or "." in moment:
        return any(True for _ in folder.glob(moment))
    try:
        loaded = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return True
    return moment in loaded


def _wrong_end(case: Case, number: signal.Signals, moment: str, status: int, folder: Path, earlier: str) -> list[str]:
    word = "interrupted" if number is signal.SIGINT else "terminated"
    printed = (folder / "errors").read_text().removeprefix(earlier).splitlines(keepends=True)
    errors = "".join(line for line in printed if "Waiting for" not in line)  # on a busy machine
    wrong = [] if status == 128 + number else [f"status {status}"]
    line, _, resumption = errors.strip().partition("; ")
    wrong += [] if line == f"{case.name}: {word}" and "\n" not in resumption else [f"it printed {errors!r}"]
    if (moment == case.file or resumption) and resumption != case.resumption:
        wrong.append(f"it says {resumption!r} of how to resume")
    return wrong + ["a traceback"] * ("Traceback" in (folder / "output").read_text())


def _left_behind(processes: list[psutil.Process]) -> list[str]:
    """Name the processes that have not ended, after the time that guards take to notice."""
    deadline = time.monotonic() + 60
    while (left := [one for one in processes if is_running(one.pid) and one.is_running()]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    return [f"process {one.pid} is left: {' '.join(one.cmdline()[:4])}" for one in left]


def _broken_files(folder: Path) -> list[str]:
    import pyarrow.parquet

    broken = []
    readers: dict[str, Callable[[Path], object]] = {
        ".json": lambda path: json.loads(path.read_text()),
        ".npz": lambda path: np.load(path, allow_pickle=False).files,
        ".parquet": pyarrow.parquet.read_table,
    }
    for path in folder.rglob("*"):
        if any(part.startswith(".") for part in path.relative_to(folder).parts) or path.suffix not in readers:
            continue
        try:
            readers[path.suffix](path)
        except Exception as error:
            broken.append(f"{path.relative_to(folder)} is broken: {error}")
    return broken

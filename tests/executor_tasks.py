"""What workers of executors do in tests, as functions that other processes can import."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from bbrgym import Engine
from bbrgym.agents.tracking import Tracker
from bbrgym.envs.engine import make_engine
from bbrgym.processes import ProcessExecutor


def divide(number: int) -> float:
    """Return 1 / number; a negative one kills its process by this signal."""
    if number < 0:
        os.kill(os.getpid(), -number)
    return 1 / number


def divide_once_killed(number: int, folder: Path) -> float:
    """As `divide`, but the process is killed only by the first call with this number."""
    killed = folder / str(number)
    if number < 0 and not killed.exists():
        killed.touch()
        divide(number)
    return 1 / number


def process_id(_: object = None) -> int:
    return os.getpid()


def make_engine_killed_once(name: str, folder: Path, after: int) -> Engine:
    """Return an engine, but kill the process the first time that this many have been made; runs count in `folder`."""
    made = len(list(folder.glob("made-*")))
    (folder / f"made-{made}-{os.getpid()}").touch()
    if made >= after and not (folder / "killed").exists():
        (folder / "killed").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return make_engine(name)


def track_job(number: int, uri: str) -> None:
    """Track a run with 40 x 5 metrics, a file and scenarios on a tracking server."""
    config = {"backend": "mlflow", "uri": uri}
    with Tracker.start(Path(f"job-{number}"), "jobs", f"job-{number}", {"seed": number}, config=config) as tracker:
        tracker.log_scenarios("alone", "training", {"rate_mbps": 12 + number})
        for step in range(40):
            tracker.log_metrics({f"m{place}": number + step / 7 + place for place in range(5)}, step)
        Path(f"file-{number}").write_text(str(number))
        tracker.log_artifact(Path(f"file-{number}"))


if __name__ == "__main__":  # a host: `executor_tasks.py <uri> <first job> <last job>`, all of them at the same time
    uri, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with ProcessExecutor(last - first + 1) as executor:
        for future in [executor.submit(track_job, number, uri) for number in range(first, last + 1)]:
            future.result()

"""What workers of executors do in tests, as functions that other processes can import."""

import os
import signal
from pathlib import Path

from bbrgym import Engine
from bbrgym.envs.engine import make_engine


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

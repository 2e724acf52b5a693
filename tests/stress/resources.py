"""What this process and its descendants hold: processes, descriptors, threads, files and sockets."""

import contextlib
import gc
import glob
import os
import resource
import tempfile
import time
import uuid
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self

MARK: Final = "BBRGYM_STRESS"
"""The environment variable by which descendants are found, whoever has adopted them."""

_CACHES: Final = ("torchinductor_",)
"""What libraries keep in the temporary folder on purpose, for the next process."""


@dataclass(frozen=True)
class Held:
    """What is held at a moment."""

    descriptors: int
    threads: int
    processes: frozenset[int]
    files: frozenset[str]
    sockets: frozenset[str]

    def beyond(self, before: Self) -> dict[str, str]:
        """Return what is held now and was not before, by kind."""
        more: dict[str, str] = {}
        for kind in KINDS:
            new = getattr(self, kind) - getattr(before, kind)
            if isinstance(new, frozenset) and new:
                more[kind] = ", ".join(map(str, sorted(new)))
            elif isinstance(new, int) and new > 0:
                more[kind] = f"{new} more"
        return more


KINDS: Final = tuple(field.name for field in fields(Held))


class Watch:
    """Finds what is left behind. Descendants inherit a mark in their environment, and a private temporary folder.

    Args:
        folder: an empty folder, which becomes the temporary folder of this process and of all that it starts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        mark = uuid.uuid4().hex
        self._mark = f"{MARK}={mark}".encode()
        self._before = os.environ.get(MARK), os.environ.get("TMPDIR"), tempfile.tempdir
        os.environ[MARK] = mark
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

    def stop(self) -> None:
        """Give this process its mark and its temporary folder back."""
        mark, folder, tempfile.tempdir = self._before
        for name, value in ((MARK, mark), ("TMPDIR", folder)):
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    def held(self) -> Held:
        """Return what is held now."""
        inside = str(self.folder).encode()
        return Held(
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=len(os.listdir("/proc/self/task")),
            processes=frozenset(self.descendants()),
            files=frozenset(
                str(path.relative_to(self.folder))
                for path in self.folder.rglob("*")
                if not path.relative_to(self.folder).parts[0].startswith(_CACHES)
            ),
            sockets=frozenset(
                line.split()[-1].decode() for line in Path("/proc/net/unix").read_bytes().splitlines() if inside in line
            ),
        )

    def left(self, before: Held, limit_s: float) -> dict[str, str]:
        """Return what is held beyond `before`, after waiting up to `limit_s` for it to go."""
        deadline = time.monotonic() + limit_s
        gc.collect()
        while True:
            now = self.held()
            more = now.beyond(before)
            if not more or time.monotonic() > deadline:
                return more
            time.sleep(0.01)

    def descendants(self) -> list[int]:
        """Return the processes with our mark but this one, also those that others have adopted."""
        found = []
        for environment in map(Path, glob.iglob("/proc/[0-9]*/environ")):
            with contextlib.suppress(OSError):  # it has ended, or is another's
                if self._mark in environment.read_bytes().split(b"\0"):
                    found.append(int(environment.parent.name))
        return [pid for pid in found if pid != os.getpid()]


def children_of(pid: int) -> list[int]:
    """Return the running descendants of a process that still have their parents."""
    found: list[int] = []
    for task in glob.iglob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError):  # it has ended
            for child in map(int, Path(task).read_text().split()):
                found += [child, *children_of(child)]
    return found

"""The stress commands find what they look for: injected leaks, hangs, crashes and wrong results (tests/stress)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stress import storm
from stress.forms import Form
from stress.resources import Watch

from bbrgym.envs.engine import EngineError
from bbrgym.processes import ChildProcess


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    folder = tmp_path / "tmp"
    folder.mkdir()
    watch = Watch(folder)
    yield watch
    watch.stop()


class Sound(Form):
    """An environment whose worker does nothing; every subclass has a defect."""

    def _make(self) -> None:
        self._worker: ChildProcess | None = None

    def _reset(self, seed: int) -> bytes:
        if self._worker is None or self._worker.is_over():
            self.close()
            self._worker = ChildProcess(["sleep", "600"], is_guarded=False)
        return b"state"

    def step(self) -> bytes:
        if self._worker is None or self._worker.is_over():
            raise EngineError("the worker is dead")
        return b"state"

    def close(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None


class LeavesWorker(Sound):
    left: list[ChildProcess] = []  # noqa: RUF012

    def close(self) -> None:
        self.left += [self._worker] if self._worker is not None else []
        self._worker = None


class LeavesFile(Sound):
    def close(self) -> None:
        Path(os.environ["TMPDIR"], f"left-{time.monotonic_ns()}").touch()
        super().close()


class LeavesDescriptor(Sound):
    left: list[int] = []  # noqa: RUF012

    def close(self) -> None:
        self.left.append(os.open("/dev/null", os.O_RDONLY))
        super().close()


class HangsAfterKill(Sound):
    def _reset(self, seed: int) -> bytes:
        if self._worker is not None and self._worker.is_over():
            time.sleep(1.3)
        return super()._reset(seed)


class NeedsTwoResets(Sound):
    def _reset(self, seed: int) -> bytes:
        if self._worker is not None and self._worker.is_over():
            self.close()
            raise EngineError("the worker is dead")
        return super()._reset(seed)


class RaisesAnything(Sound):
    def _reset(self, seed: int) -> bytes:
        if self._worker is not None and self._worker.is_over():
            raise BrokenPipeError
        return super()._reset(seed)


class IsNeverTheSame(Sound):
    def step(self) -> bytes:
        return super().step() + os.urandom(4)


@pytest.mark.parametrize(
    ("form", "rule"),
    [
        (Sound, None),
        (LeavesWorker, "left"),
        (LeavesFile, "left"),
        (LeavesDescriptor, "left"),
        (HangsAfterKill, "limit"),
        (NeedsTwoResets, "heal"),
        (RaisesAnything, "error"),
        (IsNeverTheSame, "result"),
    ],
)
def test_a_storm_finds(form: type[Form], rule: str | None, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storm, "PHASES", ("idle",))
    monkeypatch.setattr(storm, "SIGNALS", (signal.SIGKILL,) * 4)
    # A defect has a second to show; a sound form has as long as a busy machine may need.
    slack_s = 300.0 if rule is None else 1.0
    found = storm.Storm(3, storm.Limits(timeout_s=0.0, start_s=0.0, slack_s=slack_s), {"form": form}, watch)
    try:
        found.run(0, "worker")
    finally:
        for descriptor in LeavesDescriptor.left:
            os.close(descriptor)
        LeavesDescriptor.left.clear()
        for worker in LeavesWorker.left:
            worker.end()
        LeavesWorker.left.clear()
    rules = {rule for rule, _ in found.report.violations}
    assert rules == set() if rule is None else rule in rules
    assert sum(found.report.kills.values()) == 1

"""The stress commands find what they look for: injected leaks, hangs, crashes and wrong results (tests/stress)."""

import contextlib
import gc
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stress import mutants, storm
from stress.forms import Form
from stress.resources import Watch
from stress.targets import TARGETS

from bbrgym.envs.engine import EngineError
from bbrgym.processes import ChildProcess


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    folder = tmp_path / "tmp"
    folder.mkdir()
    watch = Watch(folder)
    gc.freeze()  # Watch collects garbage often, which costs much where other tests have imported much
    yield watch
    gc.unfreeze()
    watch.stop()


class Sound(Form):
    """An environment whose worker does nothing; every subclass has a defect."""

    def _make(self, engine: str, options: dict[str, Any]) -> None:
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


class LeavesFile(Sound):
    def close(self) -> None:
        Path(os.environ["TMPDIR"], f"left-{time.monotonic_ns()}").touch()
        super().close()


class HangsAfterKill(Sound):
    def _reset(self, seed: int) -> bytes:
        if self._worker is not None and self._worker.is_over():
            time.sleep(0.5)
        return super()._reset(seed)


class IsNeverTheSame(Sound):
    def step(self) -> bytes:
        return super().step() + os.urandom(4)


@pytest.mark.parametrize(
    ("form", "rule"), [(Sound, None), (LeavesFile, "left"), (HangsAfterKill, "limit"), (IsNeverTheSame, "result")]
)
def test_a_storm_finds(form: type[Form], rule: str | None, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storm, "PHASES", ("idle",))
    monkeypatch.setattr(storm, "SIGNALS", (signal.SIGKILL,) * 4)
    # A defect shows after this time; a sound form has as long as a busy machine may need.
    slack_s = 300.0 if rule is None else 0.25
    found = storm.Storm(3, storm.Limits(timeout_s=0.0, start_s=0.0, slack_s=slack_s), {"form": form}, watch)
    found.run(0)
    rules = {rule for rule, _ in found.violations}
    assert rules == set() if rule is None else rule in rules
    assert found.kills.total() == 1


# --- damaged input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("scenario", 200),
        ("series", 200),
        ("messages", 200),
        ("udp-receiver", 50),
        ("udp-sender", 100),
        ("policy", 200),
        ("agent", 100),
        ("import", 40),
    ],
)
def test_what_reads_input_survives_damaged_ones(name: str, inputs: int, tmp_path: Path) -> None:
    """`make fuzz` gives more, of other random numbers."""
    times = int(os.environ.get("FUZZ", "1"))
    rng = random.Random(times)
    with contextlib.closing(TARGETS[name](tmp_path)) as target:
        examples = target.examples()
        for example in examples:
            target.read(example)  # a valid input is not refused
        for _ in range(times * inputs):
            data = target.damage(rng.choice(examples), rng)
            (tmp_path / "input").write_bytes(data)  # also there after a crash
            reason = "none"
            try:
                target.read(data)
            except target.allowed as error:
                reason = str(error)
            assert reason, "a refusal must say why"


# --- mutants ----------------------------------------------------------------------------------------------------------


def test_judged_mutants_say_why_and_still_exist() -> None:
    for entry in json.loads(mutants.JUDGED.read_text()):
        source = (mutants.ROOT / entry["file"]).read_text()
        assert entry["why"]
        assert entry["after"] in {
            m.after for m in mutants.mutants_of(entry["file"], source) if m.before == entry["before"]
        }

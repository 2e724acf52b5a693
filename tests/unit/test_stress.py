"""Damaged inputs, and the mutants that nobody can tell from the original (tests/stress)."""

from __future__ import annotations

import contextlib
import json
import os
import random
from pathlib import Path

import pytest
from stress import mutants
from stress.targets import TARGETS


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        *(("scenario", 200), ("series", 200), ("messages", 200), ("udp-receiver", 50), ("udp-sender", 100)),
        *(("policy", 200), ("agent", 100), ("import", 40)),
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


def test_judged_mutants_say_why_and_still_exist() -> None:
    for entry in json.loads(mutants.JUDGED.read_text()):
        source = (mutants.ROOT / entry["file"]).read_text()
        assert entry["why"]
        assert entry["after"] in {
            m.after for m in mutants.mutants_of(entry["file"], source) if m.before == entry["before"]
        }

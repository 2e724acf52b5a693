"""The study of workers measures what it says, and writes where it may. Its times are not judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_process import ExecutorInThisProcess

pytest.importorskip("psutil")
from studies import scaling

DOCUMENT = "before\n<!-- begin: studies/scaling.py -->\nold\n<!-- end: studies/scaling.py -->\nafter\n"


@pytest.fixture
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "make_executor", ExecutorInThisProcess)
    monkeypatch.setattr(scaling, "ProcessExecutor", ExecutorInThisProcess)
    monkeypatch.setattr(scaling, "SCENARIO", scaling.SCENARIO | {"duration_s": 1})
    monkeypatch.setattr(scaling, "MANY", (2, ["bbr", "cubic"]))
    monkeypatch.setattr(scaling, "EMPTY_CHUNKS", 3)


@pytest.mark.usefixtures("_in_this_process")
def test_the_command_writes_both_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text(DOCUMENT)
    options = ["--executors", "local", "--workers", "1", "--work", "0", "--repetitions", "2", "--planned", "20"]
    assert scaling.main([*options, "--write", str(document)]) == 0
    printed, written = capsys.readouterr().out, document.read_text()
    assert printed.strip() in written
    assert "old" not in written.splitlines()
    assert "4 native runs of three flows" in written
    assert "### 20 native runs on 64 workers" in written
    (row,) = (line.split(" | ") for line in written.splitlines() if line.startswith("| local | 1 |"))
    assert row[3:5] == ["1.00", "1.00"]  # one worker compared with itself
    assert sum(line.startswith("| local |") for line in written.splitlines()) == 1 + 1 + len(scaling.RUNS_S)


def test_efficiency_is_the_ratio_of_one_repetition() -> None:
    def sample(start_s: float, work_s: float) -> scaling.Sample:
        return scaling.Sample(start_s, 1.0, work_s, 12.0, 2.0, 5, 0.001, 0.002, 0.001)

    alone, two = [sample(0, 10), sample(0, 30), sample(0, 20)], [sample(1, 5), sample(2, 20), sample(1, 11)]
    cost = scaling.Cost(simulation_s=0.05, execution_s=0.06, bytes=100)
    lines = scaling.efficiencies({("local", 1): alone, ("local", 2): two}, 100, cost).splitlines()
    cells = [cell.strip() for cell in lines[-1].split("|")]
    assert cells[3:9] == ["11.0", "0.91", "0.83", "1.0", "1.0", "70.0"]  # 20 / 22, 20 / 24; 12 s / 100 - 50 ms


def test_the_estimate_counts_the_chunks_of_the_scheduler() -> None:
    # Most chunks are full; the first ones and the last ones are smaller.
    count = scaling.count_chunks(runs=10_000, run_s=0.1, chunk_s=10.0, workers=4)
    assert 100 < count < 200
    assert scaling.count_chunks(runs=10, run_s=100.0, chunk_s=10.0, workers=64) == 10

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
    assert sum(line.startswith("| local |") for line in written.splitlines()) == 2


def test_efficiency_is_the_ratio_of_one_repetition() -> None:
    def sample(start_s: float, work_s: float) -> scaling.Sample:
        return scaling.Sample(start_s, 1.0, work_s, 12.0, 2.0)

    alone, two = [sample(0, 10), sample(0, 30), sample(0, 20)], [sample(1, 5), sample(2, 20), sample(1, 11)]
    cost = scaling.Cost(simulation_s=0.05, execution_s=0.06, bytes=100)
    lines = scaling.efficiencies({("local", 1): alone, ("local", 2): two}, 100, cost).splitlines()
    cells = [cell.strip() for cell in lines[-1].split("|")]
    assert cells[3:9] == ["11.0", "0.91", "0.83", "1.0", "1.0", "70.0"]  # 20 / 22, 20 / 24; 12 s / 100 - 50 ms


def test_the_estimate_is_bound_by_the_workers_or_by_this_process() -> None:
    cost, plan = scaling.Cost(0.05, 0.06, bytes=1e6), scaling.Plan(1000, 1.0, 4.0, 2e6)
    sample = scaling.Sample(5.0, 1.0, 10.0, 12.0, 2.0)  # of 100 runs: 100 ms of a worker, 20 - 4 ms of this process
    for workers, time, efficiency in ((2, "1 min 00 s", "0.832"), (10, "26.1 s", "0.383")):
        text = scaling.estimate({("local", 1): [sample]}, 100, cost, plan, workers)
        *_, load, total, found, _ = (cell.strip() for cell in text.splitlines()[-1].split("|"))
        assert (total, found) == (time, efficiency)
        assert load == ("32.0%" if workers == 2 else "100.0%")

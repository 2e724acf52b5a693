"""The benchmark script measures what it says, loses nothing and writes where it may. Its times are not judged."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from marks import needs_ns3

from bbrgym import EngineError
from bbrgym.envs.native.engine import NativeEngine
from studies import speed

MICRO = speed.Effort(1, 60.0, 0.01, resets=2, congested=0.02, scale=0.05, linux_s=1.0)
DOCUMENT = "before\n<!-- begin: studies/speed.py -->\nold\n<!-- end: studies/speed.py -->\nafter\n"


class Punctual(NativeEngine):
    """Native in place of Linux: punctual up to 10 Mbit/s."""

    pid = os.getpid()

    @property
    def timing(self) -> dict[str, float]:
        return {"late_p999_ms": 0.25}

    @property
    def flaw(self) -> str | None:
        assert self._scenario is not None
        return "late" if self._scenario.rate_mbps > 10 else None


@needs_ns3
def test_a_run_prints_every_table_and_writes_json_and_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(speed, "QUICK", MICRO)
    monkeypatch.setattr(speed, "RATES_MBPS", (12.0,))
    monkeypatch.setattr(speed, "FLOWS", (1, 10))
    monkeypatch.setattr(speed, "_CHUNK_PACKETS", {"ns3": 100, "native": 2_000})
    monkeypatch.setattr(speed, "_cpu_s", lambda pid: time.perf_counter())  # the kernel counts in 10 ms
    monkeypatch.setattr(speed, "LinuxEngine", Punctual)
    monkeypatch.setattr(speed, "LINUX_RATES_MBPS", (5.0, 10.0, 20.0))
    rate = speed.Cell(speed.TRAINING, "two threads", "PPO")
    monkeypatch.setattr(speed, "measure_training", lambda effort, seed: {rate: [1.5]})  # torch takes seconds to load
    document = tmp_path / "performance.md"
    document.write_text(DOCUMENT)

    assert speed.main(["--quick", "--write", str(document), "--runs", str(tmp_path / "runs")]) == 0

    printed, written = capsys.readouterr().out, document.read_text()
    assert printed.partition("\n\nsamples: ")[0] in written
    assert "| ns-3, 12 Mbit/s, 100 ms |" in written
    assert "| native, 12 Mbit/s, 10 ms |" in written
    assert "old" not in written.splitlines()

    (file,) = (tmp_path / "runs").iterdir()
    run = json.loads(file.read_text())
    assert run["machine"]["repetitions"].startswith("1 in ")
    assert all(math.isfinite(sample) and sample > 0 for cell in run["samples"] for sample in cell["samples"])
    measured = {(cell["table"], cell["row"], cell["column"]) for cell in run["samples"]}
    for cell in (*speed.ANCHORS, *speed.GOALS):
        assert (cell.table, cell.row, cell.column) in measured or "48 Mbit/s" in cell.row or "100 Mbit/s" in cell.row


def test_a_training_is_measured() -> None:
    samples = speed.measure_training(MICRO, 1)
    assert {cell.table for cell in samples} == {speed.TRAINING}
    assert all(rate > 0 for rates in samples.values() for rate in rates)


def test_the_highest_rate_that_linux_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "LinuxEngine", Punctual)
    monkeypatch.setattr(speed, "LINUX_RATES_MBPS", (5.0, 10.0, 20.0))
    samples = speed.measure_linux(MICRO, 1)
    for row, (_, packet_bytes) in speed.LINUX_ROWS.items():
        (rate,), (packets,) = (samples[speed.Cell(speed.LINUX, row, what)] for what in ("Mbit/s", "packets/s"))
        assert rate == 10
        assert packets == pytest.approx(10e6 / 8 / (packet_bytes + 40), rel=0.2)


@pytest.mark.parametrize("engine", [pytest.param("ns3", marks=needs_ns3), "native"])
def test_environment_and_engine_do_the_same_work(engine: str) -> None:
    with speed.same_episode(12.0, 100.0, 3, engine) as (step_env, step_engine):
        for _ in range(15):
            info, of_engine = step_env()[4], step_engine().flow(0)
            assert info["sent_packets"] > 0
            assert {column: info[column] for column in of_engine} == {
                column: 0.0 if math.isnan(value) else value for column, value in of_engine.items()
            }


def test_steps_are_of_a_busy_link() -> None:
    """Packets are what a step costs: with gains that let the bandwidth's estimate fall it would cost nothing."""
    with speed.same_episode(100.0, 100.0, 1, "native") as (_, step_engine):
        busy = [step_engine().link_row()["utilisation"] for _ in range(600)]
    assert sum(busy) > 0.95 * len(busy)


@needs_ns3
def test_what_ns3_costs_is_what_both_processes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native has Python in the same process; ns-3's own must count too."""
    monkeypatch.setattr(speed, "_cpu_s", lambda pid: 0.0)  # nothing that is seen of the worker
    row = "buffer of 5 BDP"
    samples = speed.measure_packets(MICRO, row, 1)
    of = {column: samples[speed.Cell(speed.PACKETS, row, column)][0] for column in
          ("ns-3, ns CPU", "ns-3, simulated s/s")}  # fmt: skip
    cpu_s = 5.0 * MICRO.congested / of["ns-3, simulated s/s"]
    assert cpu_s > 1.001 / os.sysconf("SC_CLK_TCK")
    assert of["ns-3, ns CPU"] > 0


def test_measurements_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    monkeypatch.setattr(speed, "measurements", lambda effort: [_recording("a", calls), _recording("b", calls)])
    report = speed.run(dataclasses.replace(MICRO, repetitions=2))
    assert calls == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert report.samples == {speed.Cell("table", name, "column"): [1.0, 2.0] for name in "ab"}
    calls.clear()
    speed.run(dataclasses.replace(MICRO, repetitions=5, limit_s=0.0))  # no second one would end in time
    assert calls == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("stop", [EngineError("ns-3 died"), KeyboardInterrupt()])
def test_what_was_measured_before_an_error_is_kept(
    stop: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(seed: int) -> dict[object, list[float]]:
        raise stop

    monkeypatch.setattr(speed, "measurements", lambda effort: [_recording("a", []), fail])
    document = tmp_path / "performance.md"
    document.write_text(DOCUMENT)
    assert speed.main(["--write", str(document), "--runs", str(tmp_path / "runs")]) == 1
    assert f"stopped early: {str(stop) or 'interrupted'}" in capsys.readouterr().err
    assert document.read_text() == DOCUMENT
    (file,) = (tmp_path / "runs").iterdir()
    assert [figure["samples"] for figure in json.loads(file.read_text())["samples"]] == [[1.0]]


@pytest.mark.parametrize(
    ("row", "value", "expected"),
    [
        ((speed.STEPS, "native, 12 Mbit/s, 100 ms", "environment"), 1520.0, "2.0"),
        ((speed.TRANSPORT, "one worker", "steps/s"), 9_500.0, "0.50 to 1.9"),
        ((speed.RESETS, "native, environment", "median"), 0.5, "480 to 620"),
    ],
)
def test_faster_is_above_one_for_rates_and_for_times(row: tuple[str, str, str], value: float, expected: str) -> None:
    assert speed.times_faster(speed.Cell(*row), [value]) == expected


@pytest.mark.parametrize(
    ("cell", "value", "word"),
    [
        (speed.Cell(speed.VECTOR, "12 Mbit/s, 10 ms", "2 threads"), 300_000.0, "reached"),
        (speed.Cell(speed.VECTOR, "12 Mbit/s, 10 ms", "2 threads"), 299_000.0, "missed"),
        (speed.Cell(speed.RESETS, "native, environment", "median"), 0.1, "reached"),
        (speed.Cell(speed.RESETS, "native, environment", "median"), 0.11, "missed"),
    ],
)
def test_a_goal_is_reached_or_missed(cell: speed.Cell, value: float, word: str) -> None:
    assert f": {word} |\n" in speed.Report({}, "2026", {cell: [value]}).tables()


def _recording(name: str, calls: list[tuple[str, int]]) -> Callable[[int], dict[object, list[float]]]:
    def measure(seed: int) -> dict[object, list[float]]:
        calls.append((name, seed))
        return {speed.Cell("table", name, "column"): [float(seed)]}

    return measure

"""The study of speed measures what it says. Its times are not judged."""

import dataclasses
import math
import os
import time
from collections.abc import Callable

import pytest
from in_process import ExecutorInThisProcess
from marks import needs_ns3

from bbrgym.benchmark.ledger import Rows
from studies import speed
from studies.speed import text_of

MICRO = speed.Effort(1, 60.0, 0.01, scale=0.02)


@needs_ns3
def test_a_run_prints_every_table_and_the_page_has_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(speed, "QUICK", MICRO)
    monkeypatch.setattr(speed, "RATES_MBPS", (12.0,))
    monkeypatch.setattr(speed, "FLOWS", (1, 10))
    monkeypatch.setattr(speed, "_CHUNK_PACKETS", {"ns3": 100, "native": 2_000})
    monkeypatch.setattr(speed, "cpu_seconds_of", lambda pid: time.perf_counter())  # the kernel counts in 10 ms
    monkeypatch.setattr(speed, "make_executor", ExecutorInThisProcess)
    kept: list[Rows] = []
    monkeypatch.setattr(speed, "text_of", lambda rows: kept.append(rows) or text_of(rows))
    assert speed.main(["--quick"]) == 0
    written = str(speed.view({"speed": kept[0]}, lambda name, draw: name)["tables"])
    assert capsys.readouterr().out.strip() == written
    for row in (
        "ns-3, 12 Mbit/s, 100 ms",
        "10 flows",
        "rollouts, shipped policy",
        "shipped policy",
        "local, 2 workers",
    ):
        assert f"| {row} |" in written
    assert f"| {speed.SMALL} |" in written
    assert "* repetitions: 1 in " in written
    assert "nan" not in written


def test_a_decision_of_the_shipped_policy_is_measured_beside_one_of_a_small_policy() -> None:
    samples = speed.measure_policy(MICRO, 1)
    shipped, small = (
        [samples[speed.Cell(speed.POLICY, row, column)] for column in ("µs", "relative to the shipped policy")]
        for row in (speed.SHIPPED, speed.SMALL)
    )
    assert set(shipped[1]) == {1.0}
    assert small[1] == [of_small / of_shipped for of_small, of_shipped in zip(small[0], shipped[0], strict=True)]


@needs_ns3
def test_what_ns3_costs_is_what_both_processes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native has Python in the same process; ns-3's own must count too."""
    monkeypatch.setattr(speed, "cpu_seconds_of", lambda pid: 0.0)  # nothing that is seen of the worker
    row = "buffer of 5 BDP"
    samples = speed.measure_packets(MICRO, row, 1)
    cpu_s = 5.0 * MICRO.scale / samples[speed.Cell(speed.PACKETS, row, "ns-3, simulated s/s")][0]
    assert cpu_s > 1.001 / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("engine", [pytest.param("ns3", marks=needs_ns3), "native"])
def test_environment_and_engine_do_the_same_work(engine: str) -> None:
    with speed.same_episode(12.0, 100.0, 3, engine) as (step_env, step_engine):
        for _ in range(15):
            info, of_engine = step_env()[4], step_engine().flow(0)
            assert info["sent_packets"] > 0
            assert {column: info[column] for column in of_engine} == {
                column: 0.0 if math.isnan(value) else value for column, value in of_engine.items()
            }


def test_measurements_take_turns_within_the_limit() -> None:
    calls: list[tuple[str, int]] = []
    measuring = [_recording("a", calls), _recording("b", calls)]
    text = text_of(speed.measure(dataclasses.replace(MICRO, repetitions=2), measuring))
    assert calls == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert "| a | 1.50 ±17% |" in text
    calls.clear()
    speed.measure(dataclasses.replace(MICRO, repetitions=5, limit_s=0.0), measuring)  # no second one would end in time
    assert calls == [("a", 1), ("b", 1)]


def _recording(name: str, calls: list[tuple[str, int]]) -> Callable[[int], speed.Samples]:
    def measure(seed: int) -> speed.Samples:
        calls.append((name, seed))
        return {speed.Cell("table", name, "column"): [float(seed)]}

    return measure

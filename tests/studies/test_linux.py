"""The comparison with a real Linux kernel: its table, its rule for late runs, and what it says when it cannot run."""

from __future__ import annotations

import dataclasses
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from studies import linux

CUBIC, PAUSES = linux.CASES[3], linux.CASES[5]


@pytest.fixture(scope="module")
def program() -> Path:
    linux.build()
    return linux.PROGRAM


# The table


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two runs of Linux with CUBIC and one with pauses, and what native makes of both."""
    monkeypatch.setattr(linux, "CASES", (CUBIC, PAUSES))
    monkeypatch.setattr(linux, "SEEDS", (1, 2))

    def simulate(situation: Any, variant: Any, engine: str, seed: int) -> tuple[float, ...]:
        assert (engine, dict(variant.parameters)) == ("native", {"burst_packets": 0.0})
        return (8.0, 1.0, float("nan"), 900.0) if variant.pause_ms else (9.0 + seed, 1.0, 40.0, 300.0)

    monkeypatch.setattr(linux, "simulate", simulate)
    file = tmp_path / "linux.json"
    measured = {CUBIC.name: [_run(9.0, 1.0), _run(11.0, 3.0, late_ms=12.0)], PAUSES.name: [_run(8.0, 2.0)]}
    file.write_text(linux._json(measured))
    assert json.loads(file.read_text()) == measured
    monkeypatch.setattr(linux, "MEASURED", file)
    return file


def test_the_table_has_linux_native_and_by_how_much_they_differ(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "fidelity.md"
    document.write_text("before\n<!-- begin: studies/linux.py -->\nold\n<!-- end: studies/linux.py -->\nafter\n")
    assert linux.main(["--write", str(document)]) == 0
    printed = capsys.readouterr().out
    assert document.read_text().partition("-->\n")[2].startswith(printed)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|")]
    linux_row, native_row, over_linux, _, native_pauses, _ = rows[2:]
    assert linux_row == [
        "12 Mbit/s, 1 BDP, bbr 60 ms and cubic 60 ms", "Linux 6.18.44", "2", "10.0 (9.0 to 11.0)", "2.0 (1.0 to 3.0)",
        "50 (50 to 50)", "30 (30 to 30)", "2.0 (2.0 to 2.0) %",
    ]  # fmt: skip
    assert native_row[1:6] == [
        "native, `burst_packets: 0`", "2", "10.5 (10.0 to 11.0)", "1.0 (1.0 to 1.0)", "40 (40 to 40)",
    ]  # fmt: skip
    assert over_linux[3:7] == ["+5 %", "-50 %", "-20 %", "+900 %"]
    assert native_pauses[-3:] == ["-", "900 (900 to 900)", "22.0 (22.0 to 22.0) %"]  # 9 Mbit/s with headers of 12
    assert "0.05 to 0.05 ms late on average in a run, and at most 12 ms late (median over the runs: 3 ms)" in printed


def test_the_runs_that_are_kept_are_of_every_case() -> None:
    measured = json.loads(linux.MEASURED.read_text())
    assert list(measured) == [case.name for case in linux.CASES]
    for case in linux.CASES:
        assert len(measured[case.name]) >= case.runs
        for run in measured[case.name]:
            assert [(flow["cc"], flow["rtt_ms"]) for flow in run["flows"]] == list(case.situation.flows)


# Measuring


def test_the_program_is_told_the_situation() -> None:
    assert PAUSES.arguments() == [
        "--packet-bytes=1000", "--pause-ms=100", "--pause-every-ms=500", "12", "90", "60", "bbr:60", "cubic:60",
    ]  # fmt: skip


def test_late_runs_are_made_once_more_the_latest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    late_ms = {CUBIC.name: [30.0, 5.0, 40.0, 60.0], PAUSES.name: [25.0, 35.0, 20.0, 2.0]}
    made: list[str] = []

    def run_once(case: Any) -> dict[str, Any]:
        made.append(case.name)
        return _run(1.0, 1.0, late_ms=late_ms[case.name].pop(0))

    monkeypatch.setattr(linux, "CASES", tuple(dataclasses.replace(case, runs=3) for case in (CUBIC, PAUSES)))
    monkeypatch.setattr(linux, "MOST_REPEATS", 2)
    monkeypatch.setattr(linux, "build", lambda: None)
    monkeypatch.setattr(linux, "run_once", run_once)
    measured = linux.measure(Console(quiet=True))
    assert made == [CUBIC.name, PAUSES.name] * 3 + [CUBIC.name, PAUSES.name]
    assert [run["late_worst_ms"] for run in measured[CUBIC.name]] == [30.0, 5.0, 40.0], "the repeat was later still"
    assert [run["late_worst_ms"] for run in measured[PAUSES.name]] == [25.0, 2.0, 20.0]


@pytest.mark.parametrize(
    ("capabilities", "kinds", "expected"),
    [
        ("000001ffffffffff", "reno bbr cubic", []),
        ("0000000000000000", "reno bbr cubic", ["root, for network namespaces"]),
        ("00000000a80425fb", "reno cubic", ["root, for", "bbr in the kernel (modprobe tcp_bbr)"]),  # in a container
    ],
)
def test_what_is_missing_is_named(
    capabilities: str, kinds: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "ipv4").mkdir()
    (tmp_path / "ipv4" / "tcp_available_congestion_control").write_text(f"{kinds}\n")
    (tmp_path / "status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    (tmp_path / "tun").touch()
    monkeypatch.setattr(linux, "SETTINGS", tmp_path)
    monkeypatch.setattr(linux, "STATUS", tmp_path / "status")
    monkeypatch.setattr(linux, "TUN", tmp_path / "tun")
    found = linux.missing()
    assert len(found) == len(expected)
    assert all(name.startswith(start) for name, start in zip(found, expected, strict=True))
    if expected:
        monkeypatch.setattr(linux, "measure", lambda *_: pytest.fail("measured"))
        assert linux.main(["--measure"]) == 1
        assert f"cannot be measured here. It needs {expected[0]}" in capsys.readouterr().err


def test_a_kernel_is_its_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    prints = tmp_path / "prints"
    prints.write_text("""#!/bin/sh\necho '{"kernel": "6.12.9-3-generic.x86_64", "flows": []}'\n""")
    prints.chmod(0o755)
    monkeypatch.setattr(linux, "PROGRAM", prints)
    assert linux.run_once(CUBIC) == {"kernel": "6.12.9", "flows": []}


def test_what_the_program_says_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fails = tmp_path / "fails"
    fails.write_text("#!/bin/sh\necho no device >&2\nexit 1\n")
    fails.chmod(0o755)
    monkeypatch.setattr(linux, "PROGRAM", fails)
    monkeypatch.setattr(linux, "CASES", (CUBIC,))
    monkeypatch.setattr(linux, "MEASURED", tmp_path / "linux.json")
    monkeypatch.setattr(linux, "missing", list)
    monkeypatch.setattr(linux, "build", lambda: None)
    assert linux.main(["--measure"]) == 1
    assert f"not measured: {CUBIC.name}: no device" in capsys.readouterr().err
    assert not (tmp_path / "linux.json").exists()


# The program


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("12 90", "usage: linux_bottleneck"),
        ("x 90 5 reno:60", "RATE_MBPS must be a number from 0.1 to 1000, not 'x'"),
        ("12 1.5 5 reno:60", "BUFFER_PACKETS must be a whole number, not '1.5'"),
        ("12 90 nan reno:60", "DURATION_S must be a number from 1 to 3600, not 'nan'"),
        ("12 90 -5 reno:60", "DURATION_S must be a number from 1 to 3600, not '-5'"),
        ("12 90 5 reno", "RTT_MS must be a number from 0.1 to 10000, not ''"),
        ("12 90 5 reno:60:9", "START_S must be a number from 0 to 5, not '9'"),
        ("12 90 5 reno:60:1:2", "a flow is CC:RTT_MS[:START_S], not 'reno:60:1:2'"),
        ("12 90 5 bbr9:60", "no congestion control 'bbr9'; this kernel has: "),
        ("--pause-ms 5 12 90 5 reno:60", "--pause-ms and --pause-every-ms need each other"),
        ("--packet-bytes 5 12 90 5 reno:60", "--packet-bytes must be a number from 100 to 1460, not '5'"),
    ],
)
def test_wrong_arguments_are_named(program: Path, arguments: str, message: str) -> None:
    done = subprocess.run([program, *arguments.split()], capture_output=True, text=True, timeout=10)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"linux_bottleneck: {message}")


@pytest.mark.skipif(bool(linux.missing()), reason="needs root and a kernel with bbr")
def test_a_second_of_linux(program: Path) -> None:
    done = subprocess.run([program, "4", "20", "1", "bbr:10", "cubic:20:0.1"], capture_output=True, timeout=20)
    run = json.loads(done.stdout)
    assert run["kernel"] == platform.release()
    assert [(flow["cc"], flow["rtt_ms"], flow["start_s"]) for flow in run["flows"]] == [
        ("bbr", 10, 0),
        ("cubic", 20, 0.1),
    ]
    assert 0 < sum(flow["mbps"] for flow in run["flows"]) < 8
    assert 0 < run["queue_ms"] <= 21 * 1040 * 8e-3 / 4 + 1e-6
    assert 0 <= run["unused"] <= 1
    assert 0 <= run["late_mean_ms"] <= run["late_worst_ms"]


def _run(first_mbps: float, second_mbps: float, late_ms: float = 3.0) -> dict[str, Any]:
    flows = [
        {"cc": "bbr", "rtt_ms": 60, "start_s": 0, "mbps": first_mbps, "retransmissions": 10},
        {"cc": "cubic", "rtt_ms": 60, "start_s": 0, "mbps": second_mbps, "retransmissions": 20},
    ]
    return {
        "kernel": "6.18.44", "flows": flows, "queue_ms": 50.0, "unused": 0.02, "late_mean_ms": 0.05,
        "late_worst_ms": late_ms,
    }  # fmt: skip

"""The table of other people's stacks: what is found, and what its rows say. No run: those take real time."""

import importlib.util
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bbrgym import Flow, Scenario, Trace, simulate
from bbrgym.envs.engine import EngineError
from studies.stacks import __main__ as study


def test_what_is_installed_decides_which_stacks_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    bare = [stack.name for stack in study.stacks(tmp_path)]
    assert all(name.startswith(("bbrgym", "kernel TCP")) for name in bare)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name == "iperf3" else None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    added = [stack.name for stack in study.stacks(tmp_path) if stack.name not in bare]
    assert added[-2:] == ["aioquic, cubic", "aioquic, reno"]
    assert all(name.startswith("iperf3") for name in added[:-2])


def run_with(flaw: str | None) -> Trace:
    trace = simulate(Scenario(rate_mbps=10, duration_s=4, flows=(Flow("cubic", 40), Flow("cubic", 40))))
    return replace(trace, flaw=flaw, timing={"late_p999_ms": 7.0, "missed_steps": 2.0})


def test_a_late_run_says_so_in_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = study.Stack("mine", Flow("cubic"))
    monkeypatch.setattr(study, "measure", lambda _, rival, __: (run_with("late" if rival else None), 2.0))
    row = study.row(stack, tmp_path)
    assert row[0] == "mine"
    assert row[-2:] == ["4", "beside: 7.0 ms late, 2 steps missed"]
    assert len(row) == study.table([row], 1.0).splitlines()[0].count("|") - 1


def test_a_stack_that_fails_is_a_row_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise EngineError("flows[0]: the client ended with status 3; its last lines: a\nb | c")

    monkeypatch.setattr(study, "measure", fail)
    row = study.row(study.Stack("mine", Flow("cubic")), tmp_path)
    assert "status 3" in row[1]
    assert len(study.table([row], 1.0).split("\n\n")[0].splitlines()) == 3

"""The comparison with Linux: what is measured and kept, the rule for late runs, the cells and their causes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pages import empty_page
from rich.console import Console

from bbrgym import Flow, Scenario, Trace
from bbrgym.benchmark.tables import run_table
from studies.linux import cases, comparison, report, runs
from studies.linux.cases import Case
from studies.linux.comparison import LINUX, NATIVE, OVER_UDP, Cell

QUIET = Console(quiet=True)
DUEL = Scenario(rate_mbps=4, buffer_bdp=1, duration_s=1, flows=(Flow("bbr", 20), Flow("linux-cubic", 20)))
CASE = Case("duel", DUEL, runs=2)
OTHER = Case("other", replace(DUEL, rate_mbps=5), runs=1)


# Cases


def test_every_case_has_runs_of_its_own_and_a_simulation() -> None:
    every = cases.all_cases()
    assert len({case.key for case in every}) == len(every)
    for case in every:
        assert not case.simulated().is_of_kernel
        assert case.simulated().scenario.duration_s == case.scenario.duration_s


def test_the_runs_of_an_agent_are_kept_for_one_policy_and_its_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = Case("beside", DUEL.with_algorithm("policy"), runs=1)
    before = replace(beside).key, replace(CASE).key
    monkeypatch.setattr(cases, "defaults", lambda algorithm: {"min_cwnd_packets": 4.0})
    assert replace(beside).key != before[0]
    assert replace(CASE).key == before[1]
    monkeypatch.undo()
    monkeypatch.setattr(cases, "hash_policies", lambda scenario: {0: "other"} if scenario == beside.scenario else {})
    assert replace(beside).key != before[0]


# Measuring


def trace(case: Case, seed: int = 1) -> Trace:
    return runs.run_once(case.simulated(), "native", seed)


class Host:
    """A stand-in for Linux that is late as told, and remembers what it ran."""

    def __init__(self, *late_ms: float) -> None:
        self.late_ms = list(late_ms)
        self.ran: list[tuple[str, int]] = []

    def run(self, case: Case, seed: int) -> Trace:
        self.ran.append((case.name, seed))
        timing = {"late_mean_ms": 0.01, "late_p999_ms": self.late_ms.pop(0), "late_max_ms": 9.0}
        flaw = "late" if timing["late_p999_ms"] > 1 else None
        return replace(trace(case, seed), timing=timing, flaw=flaw)


def test_runs_are_made_seed_by_seed_and_late_ones_again(tmp_path: Path) -> None:
    file = tmp_path / "runs.parquet"
    host = Host(0.1, 3.0, 4.0, 0.5, 3.5, 2.0)
    runs.measure_linux([CASE, OTHER], QUIET, path=file, run=host.run)
    first = [("duel", 1), ("other", 1), ("duel", 2)]
    # The latest first; a repeat that is later still leaves the run as it was, and a run is repeated twice at most.
    assert host.ran == [*first, ("duel", 2), ("other", 1), ("other", 1)]
    kept = runs.load_runs(file)
    late_ms = {(r.key, r.seed): r.late_p999_ms for r in kept.itertuples() if r.flow == 0}
    assert late_ms[OTHER.key, 1] == pytest.approx(2.0)
    assert late_ms[CASE.key, 2] == pytest.approx(0.5)
    assert set(kept["attempts"]) == {1, 2, 3}
    assert len(kept) == 6


def test_a_measurement_resumes(tmp_path: Path) -> None:
    file = tmp_path / "runs.parquet"
    host = Host(0.1)
    with pytest.raises(IndexError):  # it has no second run to give
        runs.measure_linux([CASE, OTHER], QUIET, path=file, run=host.run)
    again = Host(0.1, 0.1)
    runs.measure_linux([CASE, OTHER], QUIET, path=file, run=again.run)
    assert [*host.ran[:1], *again.ran] == [("duel", 1), ("other", 1), ("duel", 2)]
    frame = runs.measured({("d", LINUX): CASE}, runs.load_runs(file))
    assert frame[["scenario", "competitor", "seed", "flow"]].values.tolist() == [
        ["d", LINUX, seed, flow] for seed in (1, 2) for flow in (0, 1)
    ]
    simulated = runs.simulated({("d", NATIVE): CASE.simulated()}, "native", (1, 2), QUIET)
    assert run_table(frame)["share[0]"].to_numpy() == pytest.approx(run_table(simulated)["share[0]"].to_numpy())


# Cells


def cell(metric: str = "share[0]", case: Case = CASE, **of: list[float]) -> Cell:
    names = {"linux": LINUX, "native": NATIVE, "over_udp": OVER_UDP}
    return Cell(case, metric, {names.get(name, name): np.array(values) for name, values in of.items()})


def test_a_share_is_compared_with_the_equal_share_and_a_queue_with_itself() -> None:
    share = cell(linux=[0.30, 0.34], native=[0.36, 0.38])
    assert share.relative(NATIVE).value == pytest.approx(0.05 / 0.5)
    assert share.relative(NATIVE).low == pytest.approx(0.02 / 0.5)
    assert share.relative(NATIVE).high == pytest.approx(0.08 / 0.5)
    assert share.is_within()
    assert cell("link_queue_mean_ms", linux=[10.0], native=[12.0]).relative(NATIVE).value == pytest.approx(0.2)
    # A queue below one packet, 2.08 ms here, counts as one.
    assert cell("link_queue_mean_ms", linux=[0.1], native=[0.308]).relative(NATIVE).value == pytest.approx(0.1)
    assert comparison.judged(DUEL) == ["share[0]", "share[1]", *comparison.QUEUES]
    assert comparison.judged(replace(DUEL, flows=DUEL.flows[:1])) == list(comparison.QUEUES)


def test_a_cause_is_the_first_rule_that_fits() -> None:
    far = {"linux": [0.30, 0.30], "native": [0.50, 0.50]}
    assert cell(linux=[0.30, 0.50], native=[0.50, 0.50]).cause() == "chance: +20 % [+0 % +40 %]"
    hystart = next(variant.name for variant in comparison.VARIANTS if "HyStart" in variant.name)
    assert cell(**far, **{hystart: [0.31, 0.31]}).cause() == f"{hystart}: +2 %"
    closest = f"closest is {hystart}: +20 %"
    near = {hystart: [0.40, 0.40]}
    assert cell(**far, **near, over_udp=[0.49, 0.49]).cause() == f"the kernel's TCP: with ours over UDP +2 %; {closest}"
    assert cell(**far, **near, over_udp=[0.30, 0.30]).cause() == f"the host: with ours over UDP +40 %; {closest}"
    assert cell(**far).cause() == "not known"
    assert cell(case=CASE.simulated(), **far).cause() == "the host"


# The page


def test_the_page_without_runs_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "DUEL_TRACE", tmp_path / "duel.parquet")
    report.write_report(runs.load_runs(tmp_path / "none.parquet"), empty_page("linux.md", tmp_path), QUIET)
    assert (tmp_path / "linux.md").read_text().count(report.ABSENT) == 4


def test_the_page_of_a_few_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux is played by native with other seeds, so that every cell is near."""
    path = Scenario(rate_mbps=4, buffer_bdp=1, duration_s=1, flows=(Flow("bbr", 20, jitter_ms=1),))
    both = replace(path, flows=(path.flows[0], replace(path.flows[0], algorithm="linux-cubic")))
    grid = (Case("two", both, 2),)
    competitors = [one for one in cases.COMPETITORS if one.name in ("bbr", "cubic", "linux-cubic")]
    for module in (cases, report):
        monkeypatch.setattr(module, "ALIKE", {"one": path})
        monkeypatch.setattr(module, "BESIDE", {"beside": both})
        monkeypatch.setattr(module, "ALONE", {"beside": replace(both, flows=both.flows[1:])})
        monkeypatch.setattr(module, "COMPETITORS", competitors)
        monkeypatch.setattr(module, "LEAGUE_RUNS", 1)
        monkeypatch.setattr(module, "GRID", grid)
        monkeypatch.setattr(module, "DUEL", Case("duel", both, 1))
    monkeypatch.setattr(runs, "DUEL", Case("duel", both, 1))
    monkeypatch.setattr(report, "SEEDS", (1, 2))
    monkeypatch.setattr(report, "LEAGUE_SEEDS", (1,))
    monkeypatch.setattr(report, "ENGINES", {"native": NATIVE})
    monkeypatch.setattr(report, "DUEL_TRACE", tmp_path / runs.DUEL_TRACE.name)
    host = Host(*[0.1] * 100)
    runs.measure_linux(cases.all_cases(), QUIET, path=tmp_path / "runs.parquet", run=host.run)
    kept = runs.load_runs(tmp_path / "runs.parquet")
    report.write_report(kept, empty_page("linux.md", tmp_path), QUIET)
    text = (tmp_path / "linux.md").read_text()
    assert report.ABSENT not in text
    assert f"| runs | {len(host.ran)} of {len(host.ran)} |" in text
    assert "in 4 of 4 cells (shares: 2 of 2; mean queue: 1 of 1; p95 of the queue: 1 of 1)" in text
    assert (tmp_path / "linux" / "duel.png").stat().st_size > 1000
    league = report._league_of(lambda labelled: runs.measured(labelled, kept), lambda case: case)
    assert set(league.alike.results["competitor"]) == {"bbr", "cubic", "linux-cubic"}
    assert "Native differs from Linux by at most 0.000." in text

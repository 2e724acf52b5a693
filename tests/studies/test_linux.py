"""The comparison with Linux: what is measured and kept, the rule for late runs, the cells and their causes."""

from dataclasses import replace

import numpy as np
import pytest

from bbrgym import Flow, Scenario, Trace
from studies.linux import cases, comparison, report, runs
from studies.linux.cases import Case
from studies.linux.comparison import LINUX, NATIVE, OVER_UDP, Cell
from studies.linux.runs import CaseRun

DUEL = Scenario(rate_mbps=4, buffer_bdp=1, duration_s=1, flows=(Flow("bbr", 20), Flow("linux-cubic", 20)))
CASE = Case("pair", DUEL, runs=2)
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

simulate_case = runs.simulate_case


class Host:
    """A stand-in for Linux that is late as told, and counts what it ran."""

    def __init__(self, *late_ms: float) -> None:
        self.late_ms = list(late_ms)
        self.ran = 0

    def run(self, run: CaseRun) -> Trace:
        if run.engine != "linux":
            return simulate_case(run)
        self.ran += 1
        trace = simulate_case(CaseRun(run.case.simulated(), "native", run.seed))
        late_ms = self.late_ms.pop(0)
        timing = {"late_mean_ms": 0.01, "late_p999_ms": late_ms, "late_max_ms": 9.0}
        return replace(trace, timing=timing, flaw="late" if late_ms > 1 else None)


@pytest.mark.parametrize(
    ("late_ms", "kept_ms", "attempts", "has_flaw"),
    [
        ([0.1], 0.1, 1, False),
        ([3.0, 0.5], 0.5, 2, False),
        ([4.0, 2.0, 3.0], 2.0, 3, True),
    ],
)
def test_a_late_run_is_repeated_and_the_most_punctual_one_counts(
    monkeypatch: pytest.MonkeyPatch, late_ms: list[float], kept_ms: float, attempts: int, has_flaw: bool
) -> None:
    host = Host(*late_ms)
    monkeypatch.setattr(runs, "simulate_case", host.run)
    rows = runs.work(CaseRun(CASE, "linux", 1))
    assert host.ran == attempts
    for row in rows:
        assert (row["late_p999_ms"], row["attempts"], row["has_flaw"]) == (kept_ms, attempts, has_flaw)
    simulated = runs.work(CaseRun(CASE.simulated(), "native", 1))
    assert [{name: row[name] for name in runs.COLUMNS} for row in rows] == simulated


def test_real_time_is_measured_again_for_another_case_and_simulations_for_other_code_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def codes() -> list[str]:
        of_case = [CaseRun(case, engine, 1).code for case in (CASE, OTHER) for engine in ("linux", "native")]
        return [*of_case, CaseRun(replace(CASE, step_ms=50.0), "linux", 1).code]

    before = codes()
    assert len(set(before)) == len(before)
    monkeypatch.setattr(runs, "code_hash", lambda *engines, also: f"other{also}")
    assert [new == old for new, old in zip(codes(), before, strict=True)] == [True, False, True, False, True]


def test_every_job_has_a_name_of_its_own_and_real_time_comes_first() -> None:
    every = runs.jobs()
    assert len({run.name for run in every}) == len(every)
    engines = [run.engine for run in every]
    assert engines == sorted(engines, key=lambda engine: engine != "linux")
    assert sum(case.runs for case in cases.all_cases()) == engines.count("linux")


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


def test_the_page_of_a_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux is played by native with other seeds, so that every cell is near."""
    path = Scenario(rate_mbps=4, buffer_bdp=1, duration_s=1, flows=(Flow("bbr", 20, jitter_ms=1),))
    both = replace(path, flows=(path.flows[0], replace(path.flows[0], algorithm="linux-cubic")))
    changed = {
        "ALIKE": {"one": path},
        "BESIDE": {"beside": both},
        "ALONE": {"beside": replace(both, flows=both.flows[1:])},
        "COMPETITORS": [one for one in cases.COMPETITORS if one.name in ("bbr", "cubic", "linux-cubic")],
        "LEAGUE_RUNS": 1,
        "GRID": (Case("two", both, 2),),
        "DUEL": Case("duel", replace(both, duration_s=2), 1),
        "SEEDS": {"native": (1, 2), "ns3": (1,)},
        "LEAGUE_SEEDS": (1,),
    }
    for module in (cases, runs, report):
        for name in changed.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, changed[name])
    host = Host(*[0.1] * 100)
    monkeypatch.setattr(
        runs, "simulate_case", lambda run: host.run(replace(run, engine=PLAYED.get(run.engine, run.engine)))
    )
    results = {run.name: runs.work(run) for run in runs.jobs()}
    drawn = []
    view = report.view(results, lambda name, draw: drawn.append(draw()) or name)
    assert f"| runs | {host.ran} of {host.ran} |" in str(view["runs"])
    assert "in 4 of 4 cells (shares: 2 of 2; mean queue: 1 of 1; p95 of the queue: 1 of 1)" in str(view["verdict"])
    assert view["causes"] == ""
    assert str(view["values"]).count("\n| ") == 1 + 4
    assert len(drawn) == 2
    league = report.league_of(lambda labelled: runs.frame_of(labelled, "linux", results), lambda case: case)
    assert set(league.alike.results["competitor"]) == {"bbr", "cubic", "linux-cubic"}
    assert "at most 0.000" in str(view["league"])
    assert "nan" not in str(view["league"])  # one seed has no interval
    assert view["left"] == 0
    second = runs.CaseRun(cases.GRID[0], "linux", 2)
    some = {name: rows for name, rows in results.items() if name != second.name}
    view = report.view(some, lambda name, draw: name)
    assert view["left"] == 1
    assert f"| runs | {host.ran - 1} of {host.ran} |" in str(view["runs"])
    for missing in (replace(second, seed=1), runs.CaseRun(second.case.simulated(), "native", 2)):
        with pytest.raises(ValueError, match=f"'two' is not measured in {missing.engine} yet"):
            report.view({name: rows for name, rows in some.items() if name != missing.name}, lambda name, draw: name)


PLAYED = {"ns3": "native"}
"""Who takes the place of an engine that needs more than this machine may have."""

"""The league: its suites, what runs score, what it says of them, and its page."""

import hashlib
import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from in_process import ExecutorInThisProcess
from pages import empty_page

from bbrgym.baselines import registry
from bbrgym.benchmark import run
from bbrgym.benchmark.metrics import MEASURED, measure
from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.regret import RegretVerdict, regret_verdict, regrets
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.scores import SCORE, compare_scores, scores, standings
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.sharing import FairShares, Sharing
from bbrgym.envs.trace import simulate
from studies.experiments import compose_experiment
from studies.league import suites
from studies.league.__main__ import main
from studies.league.page import goals, write_league_page
from studies.league.suites import ALONE, REDRAWN, League, LeaguePlan, OwnMetric, compose_league, load_league
from studies.league.verdicts import (
    PaperVerdict,
    Worse,
    estimates,
    harm_verdict,
    harms,
    judged_as,
    metric_of,
    paper_verdicts,
)

PAPERS = Path(__file__).parents[2] / "conf/experiment/paper"
SUITES = "league.only=[generalisation,fresh,friendliness,varying,fbbr2-vs-cubic-large-buffer]"


@cache
def compose_once(experiment: str, overrides: tuple[str, ...], folder: Path | None) -> dict[str, Any]:
    return compose_experiment(experiment, overrides, folder)


@pytest.fixture(autouse=True)
def _compose_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each composition takes a quarter of a second, so equal ones are made once."""

    def compose(experiment: str, overrides: Sequence[str] = (), folder: Path | None = None) -> dict[str, Any]:
        return compose_once(experiment, tuple(overrides), folder)

    monkeypatch.setattr(suites, "compose_experiment", compose)


def plan_of(*overrides: str) -> LeaguePlan:
    return LeaguePlan.from_config(compose_league(overrides))


# The suites.


@pytest.mark.parametrize(("overrides", "engine", "seeds"), [([SUITES], "native", 10), (["preset=ns3"], "ns3", 2)])
def test_every_suite_is_a_benchmark_with_every_algorithm(overrides: list[str], engine: str, seeds: int) -> None:
    plan = plan_of(*overrides)
    for suite, config in plan.suites.items():
        benchmark = Benchmark.from_dict(config)
        assert (benchmark.name, benchmark.engine["name"]) == (f"{plan.name}/{suite}", engine)
        assert len(benchmark.seeds) == (2 if suite == REDRAWN else seeds)
        names = {competitor.name for competitor in benchmark.competitors}
        if suite != ALONE:
            # The agent's controller without an agent is none, and one is a paper's program rather than its algorithm.
            assert set(registry.controllers()) - {"agent", *registry.PROGRAMS} <= names | {plan.learned}
        assert engine == "ns3" or not names & set(registry.COMPARATORS)
    for suite, own in plan.own.items():
        assert own.metric in own.others, f"{suite} does not measure its own metric"


def test_the_league_has_every_paper_by_a_metric_that_can_be_judged() -> None:
    papers = compose_league()["league"]["papers"]
    assert set(papers) == {path.stem for path in PAPERS.glob("*.yaml")}
    for own in papers.values():
        assert judged_as(own["metric"]) is not None


def test_the_drawn_scenarios_are_the_same_as_ever() -> None:
    scenarios = plan_of(SUITES).suites["generalisation"]["scenarios"]
    text = json.dumps(scenarios, sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "31f83e48918d0bde"


@pytest.mark.parametrize(
    "experiment", sorted(path.stem for path in (Path(suites.__file__).parent / "conf").rglob("*.yaml"))
)
def test_every_experiment_is_a_league(experiment: str) -> None:
    plan = LeaguePlan.from_config(compose_league(experiment=experiment))
    assert plan.suites


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"only": ["varying"], "learned": "polcy"}, "unknown competitor of the league 'polcy'"),
        ({"only": ["generalization"]}, r"unknown suite in league.only 'generalization'"),
        ({"subset": {"varying": ["steps"]}}, "unknown scenario in the subset of varying 'steps'"),
        ({"metric": "jain"}, "a league: unknown key 'metric'"),
    ],
)
def test_a_mistake_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    config = compose_league()
    with pytest.raises(ValueError, match=message):
        LeaguePlan.from_config({**config, "league": {**config["league"], **changes}})


# Scores.


def test_the_fair_share_of_flows_that_come_and_go_by_hand() -> None:
    flows = [{}, {"start_s": 10.0, "stop_s": 30.0}, {"start_s": 0.0, "stop_s": 8.0}]
    plain = {"rate_mbps": 10.4, "packet_bytes": 1000, "duration_s": 40.0, "flows": flows}
    fair = FairShares.of(Scenario.from_dict(plain), warmup=0.25)
    # 10 Mbit/s of payload: the first flow has all of it for 10 of the 30 s that are measured, and half for 20.
    np.testing.assert_allclose(fair.mbps, [(10 * 10 + 20 * 5) / 30, 5.0, math.nan])
    assert fair.capacity_mbit == pytest.approx(300)


def test_the_fair_share_of_a_rate_that_changes_by_hand() -> None:
    plain = {"rate_mbps": 10.4, "duration_s": 40.0, "rate_schedule": [[15, 20.8], [20, 5.2]], "flows": [{}, {}]}
    fair = FairShares.of(Scenario.from_dict(plain), warmup=0.25)
    assert fair.capacity_mbit == pytest.approx(5 * 10 + 5 * 20 + 20 * 5)
    np.testing.assert_allclose(fair.mbps, [250 / 30 / 2] * 2)
    with pytest.raises(ValueError, match="size_bytes"):
        FairShares.of(Scenario.from_dict({"flows": [{"size_bytes": 1000}]}), warmup=0.0)


def test_the_base_rtt_of_a_path_that_changes_is_that_of_its_packets() -> None:
    flows = [{"rtt_ms": 20.0, "rtt_schedule": [[5, 40], [20, 80]]}, {"rtt_ms": 30.0, "stop_s": 8.0}]
    plain = {"rate_mbps": 10.4, "duration_s": 40.0, "rate_schedule": [[30, 20.8]], "flows": flows}
    fair = FairShares.of(Scenario.from_dict(plain), warmup=0.25)
    # As many packets in the last ten seconds as in the twenty before them.
    np.testing.assert_allclose(fair.base_ms, [(10 * 40 + 10 * 80 + 20 * 80) / 40, math.nan])


SCENARIO: dict[str, Any] = {"rate_mbps": 10.4, "packet_bytes": 1000, "duration_s": 40.0,
                            "flows": [{"rtt_ms": 20.0}, {"rtt_ms": 40.0}]}  # fmt: skip


def result_of(
    runs: dict[tuple[str, str, int], list[dict[str, Any]]], scenarios: dict[str, Any] | None = None, **config: Any
) -> BenchmarkResult:
    """Results as a benchmark has them; a run's flows have what is given, and the rest is NaN."""
    rows = [
        dict.fromkeys(MEASURED, math.nan)
        | {"scenario": scenario, "competitor": competitor, "seed": seed, "flow": flow, "rtt_ms": 20.0}
        | {"key": f"{scenario}/{competitor}/{seed}", "trace_hash": f"{scenario}/{competitor}/{seed}"}
        | {"active_s": 30.0, "link_duration_s": 30.0, "link_active_s": 30.0, "link_rate_mbps": 10.4}
        | values
        for (scenario, competitor, seed), flows in runs.items()
        for flow, values in enumerate(flows)
    ]
    names = list(dict.fromkeys(competitor for _, competitor, _ in runs))
    plan = {
        "config": {
            "scenarios": scenarios or {"one": SCENARIO},
            "competitors": [{"name": name} for name in names],
            "warmup": 0.25,
        }
        | config,
        "runs": [],
    }
    return BenchmarkResult(pd.DataFrame(rows), [], [], Path(), plan)


def run_of(*throughputs_mbps: float, **others: Any) -> list[dict[str, Any]]:
    total = sum(throughputs_mbps)
    return [
        {"throughput_mbps": x, "received_bytes": x * 30 / 8e-6, "share": x / total, "loss_rate": 0.0,
         "retransmission_rate": 0.01, "link_queue_mean_ms": 10.0, "rtt_mean_ms": rtt_ms + 10, "rtt_p95_ms": 2 * rtt_ms,
         "link_jain": total**2 / len(throughputs_mbps) / sum(y**2 for y in throughputs_mbps)} | others
        for x, rtt_ms in zip(throughputs_mbps, (20.0, 40.0), strict=False)
    ]  # fmt: skip


def test_scores_of_a_run_by_hand() -> None:
    table = scores(result_of({("one", "even", 1): run_of(4.0, 4.0), ("one", "odd", 1): run_of(6.0, 2.0)}))
    even, odd = table.iloc[0], table.iloc[1]
    assert even["jain"] == pytest.approx(1.0)
    assert even["utilisation"] == pytest.approx(0.8)
    assert even["delay"] == pytest.approx(10 / 40)
    assert even[SCORE] == pytest.approx(0.8 / 1.25)
    assert even["rtt_p95"] == pytest.approx(2.0)
    assert even["utility"] == pytest.approx(math.log(0.8) - 10 / 40)
    assert odd["jain"] == pytest.approx(64 / 2 / 40)
    assert odd["utility"] == pytest.approx(math.log(0.4) / 2 - 10 / 40)  # nothing for more than the fair share
    assert (table[SCORE] <= 1).all()


def test_a_flow_that_gets_nothing_has_a_score_all_the_same() -> None:
    starved = scores(result_of({("one", "x", 1): run_of(8.0, math.nan, loss_rate=math.nan)})).iloc[0]
    assert starved["jain"] == pytest.approx(0.5)
    assert starved["utility"] == pytest.approx(math.log(0.05) / 2 - 10 / 40)


def test_the_fair_power_of_a_trace_is_that_of_the_table() -> None:
    flows = [{"rtt_ms": 20, "algorithm": "cubic"}, {"rtt_ms": 50, "algorithm": "bbr", "start_s": 0.5, "stop_s": 1.5},
             {"algorithm": "bbr", "stop_s": 0.3}]  # fmt: skip
    scenario = Scenario.from_dict({"rate_mbps": 8, "buffer_bdp": 3, "duration_s": 2, "flows": flows})
    trace = simulate(scenario, "native", seed=3)
    names = {"scenario": "one", "competitor": "mixed", "seed": 3, "key": "-", "trace_hash": "-"}
    rows = pd.DataFrame([names | row for row in measure(trace, after_s=0.5)])
    plan = {"config": {"scenarios": {"one": scenario.to_dict()}, "warmup": 0.25}}
    table = scores(BenchmarkResult(rows, [], [], Path(), plan))
    sharing = Sharing.of_trace(trace, warmup=0.25)
    assert 0 < sharing.fair_power < 1
    assert len(sharing.shares) == 2
    assert table[SCORE].tolist() == [sharing.fair_power]


def test_standings_and_a_comparison_by_hand() -> None:
    runs = {}
    for seed in range(1, 5):
        runs["one", "better", seed] = run_of(4.0, 4.0)
        runs["one", "worse", seed] = run_of(3.0, 3.0 + 0.1 * seed)
        runs["two", "better", seed] = run_of(3.0, 3.0)
        runs["two", "worse", seed] = run_of(3.5, 3.5)
    table = scores(result_of(runs, {"one": SCENARIO, "two": SCENARIO}))
    standing = standings(table)
    assert list(standing.index) == ["better", "worse"]
    assert standing.loc["better", (SCORE, "iqm")] == pytest.approx(0.7 / 1.25)  # the middle half of four 0.8, four 0.6
    compared = compare_scores(table, "better", "worse")
    assert (compared.better_in, compared.scenarios) == (1, 2)
    iqm = standing[SCORE, "iqm"]
    assert compared.difference.value == pytest.approx(iqm["better"] - iqm["worse"], abs=0.02)
    assert compared.difference.low < 0 < compared.difference.high  # each is better in one


# Regret.


def table_of(**competitors: Sequence[tuple[float, float, float]]) -> pd.DataFrame:
    """Scores of runs: Jain's index, utilisation and delay of each competitor in the scenarios a, b, …; two seeds."""
    rows = {
        (scenario, name, seed): {"jain": jain, "utilisation": utilisation, "delay": delay,
                                 SCORE: jain * utilisation / (1 + delay) + (seed - 1) * 0.02 * (name == "ours")}
        for name, runs in competitors.items()
        for scenario, (jain, utilisation, delay) in zip("abcdefghij", runs, strict=False)
        for seed in (1, 2)
    }  # fmt: skip
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.rename_axis(["scenario", "competitor", "seed"])


def test_regret_is_against_the_best_other_of_each_scenario_by_hand() -> None:
    table = table_of(
        ours=[(0.5, 1.0, 0.0), (1.0, 0.9, 0.25), (1.0, 1.0, 0.0)],
        rule=[(1.0, 0.8, 0.0), (1.0, 0.6, 0.0), (1.0, 0.9, 0.0)],
        theirs=[(1.0, 0.6, 0.0), (0.9, 1.0, 0.0), (1.0, 0.9, 0.5)],
    )
    unfair, slow, won = regrets(table, "ours")
    assert [one.scenario for one in (unfair, slow, won)] == ["a", "b", "c"]
    assert [one.best for one in (unfair, slow, won)] == ["rule", "theirs", "rule"]
    # The seeds of ours differ by 0.02.
    np.testing.assert_allclose(unfair.regret, [0.8 - 0.51, 0.28, 0.3, 2])
    np.testing.assert_allclose(slow.regret[:3], [0.9 - 0.73, 0.16, 0.18])
    assert won.regret.value == pytest.approx(0.9 - 1.01)
    assert (unfair.own["jain"], unfair.other["jain"]) == (0.5, 1.0)
    assert unfair.losses == pytest.approx({"fairness": math.log(2), "utilisation": math.log(0.8), "delay": 0.0})
    assert slow.losses["delay"] == pytest.approx(math.log(1.25))
    assert (unfair.cause, slow.cause) == ("fairness", "delay")
    assert regrets(table, "nobody") == regrets(table.drop(index=["rule", "theirs"], level="competitor"), "ours") == []


def test_the_goal_needs_nine_of_ten_and_none_far_behind() -> None:
    def verdict(*ours: float) -> RegretVerdict:
        one = [(1.0, score, 0.0) for score in ours]
        return regret_verdict(regrets(table_of(ours=one, rule=[(1.0, 0.6, 0.0)] * len(ours)), "ours"))

    near = verdict(*[0.59] * 9, 0.56)  # the seeds' mean is 0.01 more
    assert (near.scenarios, near.best_in.value, near.above) == (10, 0.9, 0)
    assert near.worst.scenario == "j"
    assert near.mean.value == pytest.approx(0.03 / 10)
    assert near.best_in.low < 0.9 < near.best_in.high
    assert near.is_reached
    assert not verdict(*[0.7] * 9, 0.53).is_reached  # 0.06 behind in one
    assert not verdict(*[0.7] * 8, 0.58, 0.58).is_reached  # best in eight


# What it says of the papers' experiments.


def test_what_a_metric_is_judged_by() -> None:
    assert judged_as("throughput_mbps") == "throughput_mbps"
    assert judged_as("throughput_mbps[1]") == judged_as("share[0]") == "smallest_share"
    assert judged_as("throughput_ratio") == "evenness"
    assert judged_as("rtt_mean_ms[0]") == "rtt_mean_ms[0]"
    assert not metric_of("rtt_mean_ms[0]").is_more_better
    assert judged_as("send_rate_mbps") is None


def test_evenness_smallest_share_and_times_that_are_never_reached_by_hand() -> None:
    late = SCENARIO | {"flows": [{}, {"start_s": 5.0}, {"start_s": 12.0}, {"start_s": 9.0}]}
    times = {1: 3.0, 2: math.nan}
    rows = {
        seed: [row | {"equilibrium_s": time_s} for row in run_of(2.0 * seed, 1.0)] for seed, time_s in times.items()
    }
    result = result_of({("one", "x", seed): of_run for seed, of_run in rows.items()}, {"one": late})
    found = {name: values[:1] for name, of in estimates(result, ["evenness", "smallest_share", "equilibrium_s"]).items()
             for values in of.values()}  # fmt: skip
    assert found["evenness"] == pytest.approx((np.mean([1 / 2, 1 / 4]),))
    assert found["smallest_share"] == pytest.approx((np.mean([2 / 3, 2 / 5]),))
    assert found["equilibrium_s"] == (np.mean([3.0, 40.0 - 9.0]),)


def league_of(**competitors: tuple[float, float, float, float]) -> League:
    """Return the league of one paper with three runs of each competitor.

    Args:
        competitors: Mbit/s of the first flow, of the second in the first run, how much more of it in each further run
            (0: the runs are equal), and how many of 5000 packets are lost.
    """
    result = result_of(
        {
            ("one", name, seed): run_of(
                first, second + (seed - 1) * more, link_drops=lost, link_random_losses=0.0, sent_packets=5000.0,
                trace_hash=f"{name}/{seed * bool(more)}",
            )
            for name, (first, second, more, lost) in competitors.items()
            for seed in (1, 2, 3)
        }
    )  # fmt: skip
    others = ("link_jain", "throughput_mbps", "true_loss", "send_rate_mbps")
    own = OwnMetric("link_jain", "theirs", others)
    plan = LeaguePlan("league", learned="ours", rival="theirs", yardsticks=("yard",), own={"paper": own})
    return League(plan, {"paper": result})


def verdict_of(**competitors: tuple[float, float, float, float]) -> PaperVerdict:
    """Return the verdict on the runs that `league_of` describes."""
    (verdict,) = paper_verdicts(league_of(**competitors))
    return verdict


def test_an_interval_above_all_others_and_nothing_worse_is_reached() -> None:
    verdict = verdict_of(ours=(4, 4, 0.1, 5), theirs=(6, 2, 0.1, 0), other=(5, 3, 0.1, 0), yard=(4, 4, 0, 0))
    assert verdict.best == "other"
    assert verdict.all.above == verdict.all.algorithms == ["theirs", "other"]  # no verdict is about a yardstick
    assert not verdict.all.worse  # half a thousandth more lost is not worse
    assert verdict.all.is_first
    assert verdict.all.is_reached
    assert verdict.own.is_reached


def test_what_is_worse_by_more_than_a_fiftieth_is_named() -> None:
    verdict = verdict_of(ours=(4, 4, 0.1, 40), theirs=(6, 2, 0.1, 39), other=(6, 2.4, 0.1, 0))
    assert verdict.all.is_first
    assert not verdict.all.is_reached
    assert verdict.own.is_reached
    assert [entry.metric for entry in verdict.all.worse] == ["throughput_mbps", "true_loss"]
    assert verdict.all.worse[1] == Worse("true_loss", 0.004, 0.0, "other")


def test_equal_runs_stand_for_their_interval() -> None:
    verdict = verdict_of(ours=(4, 4, 0, 0), theirs=(4, 3.9, 0, 0))
    assert math.isnan(verdict.estimates["ours"].low)
    assert verdict.all.is_reached


# Harm.


def test_harm_by_hand() -> None:
    scenarios = {"s": SCENARIO | {"flows": [{"rtt_ms": 20.0}, {"rtt_ms": 20.0, "algorithm": "cubic"}]}}
    runs = {"cubic": [(5.0, 5.0), (5.0, 5.0)], "ours": [(7.0, 3.0), (5.0, 5.0)], "bbr2": [(6.0, 4.0), (6.0, 4.0)]}
    rtts_ms = {"cubic": 40.0, "ours": 50.0, "bbr2": 30.0}
    beside = result_of(
        {
            ("s", name, seed): run_of(*throughputs_mbps, rtt_mean_ms=rtts_ms[name])
            for name, of_seeds in runs.items()
            for seed, throughputs_mbps in enumerate(of_seeds, start=1)
        },
        scenarios,
    )
    alone = result_of({("s", ALONE, seed): run_of(10.0, rtt_mean_ms=25.0) for seed in (1, 2)}, scenarios)
    plan = LeaguePlan("league", learned="ours", rival="bbr2")
    table = harms(League(plan, {"friendliness": beside, ALONE: alone}))
    ours = table.xs("ours", level="competitor").iloc[0]
    assert ours["throughput"] == pytest.approx(0.7)
    assert ours["delay"] == pytest.approx(1 - 25 / 50)
    own, other, difference = harm_verdict(table, "cubic", "ours", "bbr2")
    assert (own, other) == pytest.approx((0.6, 0.6))
    np.testing.assert_allclose(difference[:3], [0, -0.1, 0.1], atol=1e-12)


# All of it.

SMALL = (
    "preset=quick",
    "presets.quick.seeds=[1,2]",
    "benchmark.competitors=[cubic,bbr2,da-bbr,{name: learned, algorithm: da-bbr, parameters: {min_cwnd_packets: 5}}]",
    "league.learned=learned",
    "league.yardsticks=[]",
    "league.subset={generalisation: [typical-02, wide-01], fresh: [fresh-08], wireless: [wireless-01], "
    "friendliness: [cubic-1bdp], varying: [cellular], paths: [longer], "
    "bbq-original: [5bdp]}",
    "benchmark.executor.workers=1",
)


def test_the_whole_league_small_from_the_command_line_to_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "make_executor", ExecutorInThisProcess)
    path = Path("docs/league.md")
    path.parent.mkdir()
    empty_page("league.md", path.parent)
    assert main([*SMALL, f"write={path}"]) == 0
    printed = capsys.readouterr().out
    assert "harm to CUBIC's throughput no greater than bbr2's" in printed
    assert f"Page: {path}" in printed
    assert "`python -m studies.league preset=quick" in path.read_text()  # the command that made it

    league = load_league(compose_league(SMALL), Path("runs/benchmark"))
    assert list(league.results) == ["generalisation", "fresh", "wireless", "friendliness", ALONE, "varying", "paths",
                                    "bbq-original"]  # fmt: skip
    assert league.failures == 0
    # The paper's experiment has its own competitors, and those of the league that it has not.
    names = [entry["name"] for entry in league.results["bbq-original"].plan["config"]["competitors"]]
    assert names == ["bbr", "bbq", "cubic", "bbr2", "da-bbr", "learned"]
    assert len(goals(league)) == 9

    write_league_page(league, path, part=league)
    written = path.read_text()
    assert "Not run yet" not in written
    assert "nan" not in written


def test_a_league_without_results_has_no_page(tmp_path: Path) -> None:
    league = load_league(compose_league(SMALL), tmp_path)
    assert goals(league) == []
    with pytest.raises(ValueError, match="has no results"):
        write_league_page(league, tmp_path / "league.md")

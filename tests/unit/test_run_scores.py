"""Fair shares, the scores of runs, standings and regret, by hand."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bbrgym.benchmark.metrics import MEASURED, measure
from bbrgym.benchmark.regret import regrets
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.run_scores import SCORE, scores, standings
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.sharing import FairShares, Sharing
from bbrgym.envs.trace import simulate


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


SCENARIO: dict[str, Any] = {
    "rate_mbps": 10.4,
    "packet_bytes": 1000,
    "duration_s": 40.0,
    "flows": [{"rtt_ms": 20.0}, {"rtt_ms": 40.0}],
}


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
    return BenchmarkResult(results=pd.DataFrame(rows), failures=[], missing=[], directory=Path(), plan=plan)


def run_of(*throughputs_mbps: float, **others: Any) -> list[dict[str, Any]]:
    total = sum(throughputs_mbps)
    return [
        {
            "throughput_mbps": x,
            "received_bytes": x * 30 / 8e-6,
            "share": x / total,
            "loss_rate": 0.0,
            "retransmission_rate": 0.01,
            "link_queue_mean_ms": 10.0,
            "rtt_mean_ms": rtt_ms + 10,
            "rtt_p95_ms": 2 * rtt_ms,
            "link_jain": total**2 / len(throughputs_mbps) / sum(y**2 for y in throughputs_mbps),
        }
        | others
        for x, rtt_ms in zip(throughputs_mbps, (20.0, 40.0), strict=False)
    ]


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
    flows = [
        {"rtt_ms": 20, "algorithm": "cubic"},
        {"rtt_ms": 50, "algorithm": "bbr", "start_s": 0.5, "stop_s": 1.5},
        {"algorithm": "bbr", "stop_s": 0.3},
    ]
    scenario = Scenario.from_dict({"rate_mbps": 8, "buffer_bdp": 3, "duration_s": 2, "flows": flows})
    trace = simulate(scenario, "native", seed=3)
    names = {"scenario": "one", "competitor": "mixed", "seed": 3, "key": "-", "trace_hash": "-"}
    rows = pd.DataFrame([names | row for row in measure(trace, after_s=0.5)])
    plan = {"config": {"scenarios": {"one": scenario.to_dict()}, "warmup": 0.25}}
    table = scores(BenchmarkResult(results=rows, failures=[], missing=[], directory=Path(), plan=plan))
    sharing = Sharing.of_trace(trace, warmup=0.25)
    assert 0 < sharing.fair_power < 1
    assert len(sharing.shares) == 2
    assert table[SCORE].tolist() == [sharing.fair_power]


def test_standings_by_hand() -> None:
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


def test_standings_have_no_interval_where_the_seeds_of_each_scenario_give_the_same() -> None:
    runs = {}
    for seed in range(1, 5):
        for scenario, mbps in (("one", 4.0), ("two", 3.0)):
            runs[scenario, "same", seed] = run_of(mbps, mbps)
            runs[scenario, "varies in two", seed] = run_of(mbps, mbps + 0.1 * seed * (scenario == "two"))
            runs[scenario, "resends", seed] = run_of(mbps, mbps, retransmission_rate=0.01 * seed)
    standing = standings(scores(result_of(runs, {"one": SCENARIO, "two": SCENARIO})))
    ends = {name: standing.loc[name, SCORE][["low", "high"]].tolist() for name in standing.index}
    assert np.isnan(ends["same"]).all()
    assert ends["varies in two"][0] < ends["varies in two"][1]
    assert ends["resends"][0] == ends["resends"][1]  # different runs that agree in it


# Regret.


def table_of(**competitors: Sequence[tuple[float, float, float]]) -> pd.DataFrame:
    """Scores of runs: Jain's index, utilisation and delay of each competitor in the scenarios a, b, …; two seeds."""
    rows = {
        (scenario, name, seed): {
            "jain": jain,
            "utilisation": utilisation,
            "delay": delay,
            SCORE: jain * utilisation / (1 + delay) + (seed - 1) * 0.02 * (name == "ours"),
        }
        for name, runs in competitors.items()
        for scenario, (jain, utilisation, delay) in zip("abcdefghij", runs, strict=False)
        for seed in (1, 2)
    }
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

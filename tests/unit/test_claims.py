"""Claims: how they are read, and what the judge of all of them says."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bbrgym import Flow, Scenario
from bbrgym.benchmark.claims import Claim
from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.suites import Suite
from bbrgym.benchmark.verdicts import RUN, ClaimRuns, Verdicts, judge_claims, measure_pooled

NAMES = ["bbr", "bbq", "cubic"]
SCENARIOS = dict.fromkeys(("s", "t"), Scenario(flows=(Flow(), Flow())))


def claim(**plain: Any) -> Claim:
    usual = {"metric": "link_jain", "scenario": "s", "competitor": "bbr", "at_least": 0.5}
    return Claim.from_dict({**usual, **plain}, NAMES, SCENARIOS)


def runs_of(
    values: dict[tuple[str, str], list[float]], metric: str = "link_jain", are_equal: bool = False
) -> ClaimRuns:
    """Runs from {(scenario, competitor): a value per seed}; None is a run that is missing, NaN one without a value."""
    rows = {
        (scenario, competitor, seed): value
        for (scenario, competitor), of_seeds in values.items()
        for seed, value in enumerate(of_seeds)
        if value is not None
    }
    index = pd.MultiIndex.from_tuples(rows, names=RUN)
    return ClaimRuns(pd.DataFrame({metric: list(rows.values())}, index=index), [] if are_equal else list(values))


def test_a_claim_is_equal_after_to_dict_and_from_dict() -> None:
    claims = [
        claim(at_most=0.9, over="min", scenario=["s", "t"], wording="fair", source="us", because="so", reason="not so"),
        claim(competitor=None, at_least=None, order=["bbr", "cubic"]),
        claim(at_least=None, value=3, **{"as": "reduction", "than": "cubic"}),
        claim(against="cubic"),
    ]
    for one in claims:
        assert Claim.from_dict(json.loads(json.dumps(one.to_dict())), NAMES, SCENARIOS) == one
    assert claim().to_dict() == {"metric": "link_jain", "scenario": ["s"], "competitor": "bbr", "at_least": 0.5}


def test_a_claim_about_each_scenario_has_a_part_for_each() -> None:
    both = claim(scenario=["s", "t"], over="each")
    assert [part.scenarios for part in both.parts()] == [("s",), ("t",)]
    found = judge_claims([both], runs_of({("s", "bbr"): [0.4], ("t", "bbr"): [0.6]}))
    assert [one.verdict for one in found] == ["fail", "pass"]
    assert claim(scenario=["s", "t"], over="max").parts() == [claim(scenario=["s", "t"], over="max")]


def test_a_comparison_is_a_ratio_unless_it_says_that_it_is_a_reduction() -> None:
    assert (claim().quantity, claim(than="cubic").quantity, claim(against="cubic").quantity) == (
        "value",
        "ratio",
        "ratio",
    )
    assert claim(than="cubic").label == "Jain's fairness index over that with cubic"
    assert claim(than="cubic", **{"as": "reduction"}).label == "reduction of Jain's fairness index against cubic"
    assert claim(metric="throughput_mbps[1]").label == "throughput of flow 1 (Mbit/s)"
    utilisation = {"metric": "link_utilisation", "at_least": 0.75}
    assert (claim(**utilisation).needed, claim(**utilisation, than="bbr").needed) == (">= 75%", ">= 0.75")


def test_than_compares_runs_with_the_same_seed_and_against_compares_means() -> None:
    runs = runs_of({("s", "bbr"): [1.0, 9.0], ("s", "cubic"): [2.0, 3.0]})
    than, against = judge_claims([claim(than="cubic"), claim(against="cubic")], runs)
    assert than.measured.estimate.value == pytest.approx((1 / 2 + 9 / 3) / 2)
    assert against.measured.estimate.value == pytest.approx((1 + 9) / (2 + 3))
    reduced = judge_claims([claim(than="cubic", **{"as": "reduction"})], runs)[0]
    assert reduced.measured.estimate.value == pytest.approx(1 - (1 / 2 + 9 / 3) / 2)


@pytest.mark.parametrize(("over", "value"), [("mean", 0.6), ("min", 0.4), ("max", 0.8)])
def test_several_scenarios_are_taken_over_their_means(over: str, value: float) -> None:
    runs = runs_of({("s", "bbr"): [0.1, 0.7], ("t", "bbr"): [0.9, 0.7]})
    (found,) = judge_claims([claim(scenario=["s", "t"], over=over)], runs)
    assert found.measured.estimate.value == pytest.approx(value)


def test_what_has_no_value_is_unclear_and_what_was_not_run_has_no_verdict() -> None:
    one = claim(at_least=0.1)
    for values in ([0.5, None], [0.5, math.nan]):
        (found,) = judge_claims([one], runs_of({("s", "bbr"): values, ("t", "bbr"): [0.5, 0.5]}))
        assert (found.verdict, found.measured.estimate.value) == ("unclear", 0.5)
    for runs in (runs_of({("t", "bbr"): [0.5]}), runs_of({("s", "bbr"): [0.5]}, "link_drops")):
        (found,) = judge_claims([one], runs)
        assert found.verdict is None
        assert math.isnan(found.measured.estimate.value)


def test_equal_runs_have_no_interval() -> None:
    values = {("s", "bbr"): [0.6, 0.7]}
    low = [
        judge_claims([claim()], runs_of(values, are_equal=equal))[0].measured.estimate.low for equal in (True, False)
    ]
    assert math.isnan(low[0])
    assert low[1] == pytest.approx(0.6)


def test_of_pooled_scenarios_these_are_resampled_and_not_the_seeds() -> None:
    runs = runs_of({("s", "bbr"): [0.2, 0.4], ("t", "bbr"): [0.5, 0.7]})
    pooled = measure_pooled(claim(scenario=["s", "t"]), runs)
    np.testing.assert_allclose(pooled.estimate, (0.45, 0.3, 0.6, 2))
    missing = measure_pooled(claim(scenario=["s", "t"]), runs_of({("s", "bbr"): [0.2, 0.4]}))
    assert not missing.is_whole


def test_a_criterion_can_be_about_the_worst_scenario() -> None:
    plain = {
        "criteria": [
            {"metric": "link_jain", "at_least": 0.5, "over": "min", "because": "half"},
            {"metric": "link_jain", "at_least": 0.9, "against": "cubic", "because": "nearly as much"},
        ],
        "scenarios": {name: {"duration_s": 1, "flows": [{}]} for name in ("a", "b")},
    }
    benchmark = Benchmark.from_dict({"competitors": ["bbr"], "suites": {"fair": plain}, "seeds": [0, 1]})
    assert benchmark.suites["fair"].references == ("cubic",)
    index = pd.MultiIndex.from_product([["fair/a", "fair/b"], ["bbr", "cubic"], [0, 1]], names=RUN)
    table = pd.DataFrame({"link_jain": [0.8, 0.9, 1.0, 1.0, 0.3, 0.4, 0.2, 0.2]}, index=index)
    verdicts = Verdicts.of_table(benchmark, table, varied=[])
    found = [(one.scenario, round(one.measured.value, 6), one.verdict) for one in verdicts.judgements]
    assert found == [("fair/all", 0.35, "fail"), ("fair/a", 0.85, "fail"), ("fair/b", 1.75, "pass")]
    assert verdicts.verdict("fair", "bbr") == "fail"


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        ({"competitor": "bbr", "at_least": 1}, "holds for all competitors and scenarios"),
        ({"scenario": "x", "at_least": 1}, "holds for all competitors and scenarios"),
        ({"order": ["bbr", "cubic"]}, "a criterion must have at_least or at_most"),
        ({"at_least": 1, "than": "bbr9"}, r"the claim about link_jain: unknown competitor 'bbr9' \(did you mean 'bbr'"),
        ({"at_least": 1, "thn": "bbr"}, "a claim: unknown key 'thn' .did you mean 'than'"),
        ({"at_least": math.inf}, "at_least must be a finite number, got inf"),
    ],
)
def test_what_no_criterion_can_be_is_refused_by_name(criterion: dict[str, Any], message: str) -> None:
    plain = {"criteria": [{"metric": "link_jain", "because": "x", **criterion}], "scenarios": ["a"]}
    with pytest.raises(ValueError, match=message):
        Suite.from_dict("fair", plain)
    with pytest.raises(ValueError, match="a claim must be a mapping"):
        Suite.from_dict("fair", plain | {"criteria": ["link_jain"]})

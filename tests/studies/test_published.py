"""What papers published, and whether measurements agree with it."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bbrgym import Flow, Scenario
from bbrgym.benchmark.published import Paper, PublishedComparison, compare, load_paper

NAMES = ["bbr", "bbq", "da-bbr", "bbr-acw"]
TWO_FLOWS = Scenario(flows=(Flow(rtt_ms=10), Flow(rtt_ms=50)))


def paper(*published: Mapping[str, Any], scenarios: Sequence[str] = ("s", "t"), **others: Any) -> Paper:
    plain = {"title": "A paper", "published": list(published)} | others
    return Paper.from_dict(plain, dict.fromkeys(scenarios, TWO_FLOWS), NAMES)


def results_of(
    values: Mapping[str, Mapping[str, Sequence[Any]]], metric: str = "link_jain", are_equal: bool = False
) -> pd.DataFrame:
    """Results of two flows from {scenario: {competitor: a value a seed}}; a value of a flow may be a pair."""
    rows = []
    for scenario, of_competitors in values.items():
        for name, of_seeds in of_competitors.items():
            for seed, value in enumerate(of_seeds):
                if value is None:  # not run
                    continue
                for flow, of_flow in enumerate(value if isinstance(value, tuple) else (value, value)):
                    origin = {"scenario": scenario, "competitor": name, "seed": seed, "key": f"{scenario}{name}{seed}"}
                    trace = "equal" if are_equal else str(seed)
                    rows.append({**origin, "flow": flow, "trace_hash": trace, metric: float(of_flow)})
    return pd.DataFrame(rows)


def row_of(
    claim: Mapping[str, Any], results: pd.DataFrame | Mapping[str, Any], *others: Any, **options: Any
) -> PublishedComparison:
    """Compare one claim with results, or with the arguments of `results_of`."""
    frame = results if isinstance(results, pd.DataFrame) else results_of(results, *others, **options)
    (row,) = compare(paper(claim), frame)
    return row


ENTRY = {"metric": "link_jain", "scenario": "s", "competitor": "bbr", "value": 0.5}


def test_a_value_has_its_mean_interval_and_ratio() -> None:
    row = row_of(ENTRY, {"s": {"bbr": [0.7, 0.8, 0.9]}})
    assert (row.what, row.published) == ("link_jain of bbr, s", "0.5")
    assert row.value == pytest.approx(0.8)
    assert row.measured == "0.800 [0.700 0.900]"
    assert row.ratio == pytest.approx(1.6)
    # With nothing to compare it with, nearness is for the reader to judge.
    assert (row.agrees, row.agreement) == (None, "-")


def test_a_value_is_judged_by_its_order_among_the_others() -> None:
    claims = [
        {"metric": "link_jain", "scenario": "s", "competitor": name, "value": value}
        for name, value in (("bbr", 0.6), ("bbq", 0.8), ("da-bbr", 0.9), ("bbr-acw", 0.9))
    ]
    # bbq and da-bbr have changed places; da-bbr and bbr-acw are equal in the paper, and have no order.
    results = results_of({"s": {"bbr": [0.1], "bbq": [0.5], "da-bbr": [0.4], "bbr-acw": [0.7]}})
    rows = compare(paper(*claims), results)
    assert [row.agreement for row in rows] == ["yes", "2 of 3 pairs", "1 of 2 pairs", "yes"]
    assert [row.agrees for row in rows] == [True, False, False, True]


def test_flows_of_one_competitor_are_judged_by_who_gets_more() -> None:
    claims = [
        {"metric": f"throughput_mbps[{flow}]", "scenario": "s", "competitor": "bbr", "value": value}
        for flow, value in ((0, 8.9), (1, 85.2))
    ]
    for throughputs, agreement in (((2, 90), "yes"), ((90, 2), "no")):
        rows = compare(paper(*claims), results_of({"s": {"bbr": [throughputs]}}, "throughput_mbps"))
        assert [row.agreement for row in rows] == [agreement] * 2
        assert rows[1].value == throughputs[1]


def test_values_of_other_quantities_are_no_partners() -> None:
    claims = [
        {"metric": "link_jain", "scenario": "s", "competitor": "bbr", "value": 0.6},
        {"metric": "link_jain", "scenario": "t", "competitor": "bbq", "value": 0.7},
        {"metric": "link_jain", "scenario": "s", "competitor": "bbq", "at_least": 0.7},
        {"metric": "link_jain", "scenario": "s", "competitor": "bbq", "as": "ratio", "against": "bbr", "value": 1.2},
        {"metric": "link_jain", "scenario": ["s", "t"], "competitor": "bbq", "value": 0.8},
    ]
    values = {"bbr": [0.1], "bbq": [0.9]}
    rows = compare(paper(*claims), results_of({"s": values, "t": values}))
    assert [row.agreement for row in rows] == ["-", "-", "yes", "-", "-"]


@pytest.mark.parametrize(
    ("bound", "value", "agreement", "agrees"),
    [
        ("above", 0.6, "yes", True),
        ("above", 0.95, "no", False),
        ("below", 0.6, "no", False),
        ("below", 0.95, "yes", True),
        ("above", 0.79, "unclear", None),
        ("below", 0.79, "unclear", None),
    ],
)
def test_a_bound_holds_or_not_unless_the_interval_has_it_in_it(
    bound: str, value: float, agreement: str, agrees: bool | None
) -> None:
    key = {"above": "at_least", "below": "at_most"}[bound]
    row = row_of(ENTRY | {"value": None, key: value}, {"s": {"bbr": [0.7, 0.8, 0.9]}})
    assert (row.agreement, row.agrees) == (agreement, agrees)
    assert row.published == f"{bound} {value}"


def test_an_order_counts_all_pairs() -> None:
    claim = {"metric": "link_jain", "scenario": "s", "order": ["bbr", "bbq", "da-bbr", "bbr-acw"]}
    results = results_of({"s": {"bbr": [0.6], "bbq": [0.1], "da-bbr": [0.7], "bbr-acw": [0.9]}})
    row = row_of(claim, results)
    assert (row.agreement, row.agrees) == ("5 of 6 pairs", False)
    assert row.published == "bbr < bbq < da-bbr < bbr-acw"
    assert row.measured == "bbq 0.100 < bbr 0.600 < da-bbr 0.700 < bbr-acw 0.900"
    agreeing = row_of(claim | {"order": ["bbq", "da-bbr"]}, results)
    assert (agreeing.agreement, agreeing.agrees) == ("yes", True)
    against = row_of(claim | {"order": ["da-bbr", "bbq"]}, results)
    assert (against.agreement, against.agrees) == ("no", False)


def test_a_reduction_is_of_the_same_seeds() -> None:
    claim = {"metric": "link_drops", "scenario": "s", "competitor": "bbq", "as": "reduction", "against": "bbr"}
    # The seeds differ far more than the competitors: only as pairs do they show a reduction of a half.
    results = results_of({"s": {"bbr": [10, 100, 1000, 5], "bbq": [5, 50, 500, None]}}, "link_drops")
    row = row_of(claim | {"value": 0.4}, results)
    assert row.what == "reduction of link_drops of bbq against bbr, s"
    assert row.measured == "0.500 [0.500 0.500]"
    assert row.ratio == pytest.approx(1.25)
    ratio = row_of(claim | {"as": "ratio", "value": 0.4}, results)
    assert ratio.what == "link_drops of bbq over that of bbr, s"
    assert ratio.value == pytest.approx(0.5)


def test_a_reduction_is_that_of_the_means() -> None:
    claim = {"metric": "link_drops", "scenario": "s", "competitor": "bbq", "as": "reduction", "against": "bbr"}
    results = results_of({"s": {"bbr": [0, 100], "bbq": [10, 40]}}, "link_drops")
    assert row_of(claim | {"value": 0.5}, results).value == pytest.approx(0.5)
    nothing = results_of({"s": {"bbr": [0, 0], "bbq": [0, 0]}}, "link_drops")
    assert row_of(claim | {"value": 0.5}, nothing).measured == "-"


@pytest.mark.parametrize(
    ("over", "value", "word"), [("mean", 0.6, "mean"), ("min", 0.4, "smallest"), ("max", 0.8, "largest")]
)
def test_several_scenarios(over: str, value: float, word: str) -> None:
    claim = {"metric": "link_jain", "scenario": ["s", "t"], "competitor": "bbr", "over": over, "value": 1}
    # The seeds' own smallest values are not those of a scenario.
    row = row_of(claim, {"s": {"bbr": [0.1, 0.7]}, "t": {"bbr": [0.9, 0.7]}})
    assert row.value == pytest.approx(value)
    assert row.what == f"{word} link_jain of bbr, s, t"


def test_what_is_not_there_is_not_judged() -> None:
    claims = [
        {"metric": "link_jain", "scenario": "s", "competitor": "bbr", "value": 0.5, "reason": "reasons"},
        {"metric": "link_jain", "scenario": ["s", "t"], "competitor": "bbq", "value": 0.5},
        {"metric": "link_jain", "scenario": "s", "competitor": "bbq", "at_least": 0.5},
        {"metric": "link_jain", "scenario": "s", "order": ["bbq", "bbr"]},
        {"metric": "link_jain", "scenario": "s", "competitor": "bbq", "as": "ratio", "against": "bbr", "value": 1},
    ]
    for results in (
        pd.DataFrame(columns=["scenario", "competitor", "seed", "key"]),
        results_of({"t": {"bbr": [0.5]}}),
        results_of({"s": {"bbr": [math.nan], "bbq": [math.nan]}}),
    ):
        for row in compare(paper(*claims), results):
            assert (row.measured, row.agrees, row.agreement, row.because) == ("-", None, "-", "")
            assert math.isnan(row.ratio)
    rows = compare(paper(*claims), results_of({"s": {"bbr": [0.5, None], "bbq": [None, 0.9]}}))
    assert [row.measured for row in rows] == ["0.500", "-", "0.900", "bbr 0.500 < bbq 0.900", "-"]


def test_a_time_may_never_come() -> None:
    claim = {"metric": "equilibrium_s", "scenario": "s", "competitor": "bbr", "at_least": 70}
    never = row_of(claim, {"s": {"bbr": [math.nan, math.nan]}}, "equilibrium_s")
    assert (never.measured, never.agreement, never.value) == ("never", "yes", math.inf)
    seldom = row_of(claim, {"s": {"bbr": [math.nan, 20.0]}}, "equilibrium_s")
    assert (seldom.measured, seldom.agreement) == ("20.0 (1 of 2 runs)", "no")
    rarely = row_of(claim, {"s": {"bbr": [math.nan, 20.0, math.nan]}}, "equilibrium_s")
    assert (rarely.measured, rarely.agreement) == ("never in 2 of 3 runs", "yes")
    reduced = {**claim, "competitor": "bbq", "as": "reduction", "against": "bbr"}
    results = results_of({"s": {"bbr": [math.nan], "bbq": [30.0]}}, "equilibrium_s")
    assert row_of(reduced, results).measured == "-"
    order = {"metric": "equilibrium_s", "scenario": "s", "order": ["bbq", "bbr"]}
    results = results_of({"s": {"bbr": [math.nan], "bbq": [30.0]}}, "equilibrium_s")
    row = row_of(order, results)
    assert (row.measured, row.agreement) == ("bbq 30.0 < bbr never", "yes")


def test_a_reason_is_for_what_does_not_agree() -> None:
    claim = {"metric": "link_jain", "scenario": "s", "competitor": "bbr", "reason": "reasons"}
    results = results_of({"s": {"bbr": [0.6]}})
    assert row_of(claim | {"at_most": 0.5}, results).because == "reasons"
    assert row_of(claim | {"at_least": 0.5}, results).because == ""


FIGURE = {"title": "f", "x": "loss", "y": ["link_jain"]}
SHARES = {"metric": "share[2]", "order": ["bbq", "bbr"]}


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"published": [ENTRY | {"metric": "jain"}]}, r"unknown metric 'jain' \(did you mean 'link_jain'\?\); known: "),
        ({"published": [ENTRY | {"scenario": "u"}]}, "the claim about link_jain: unknown scenario 'u'; known: s, t"),
        ({"published": [ENTRY | {"scenario": None}]}, "names no scenario, and there are several: s, t"),
        ({"published": [ENTRY | {"order": ["bbr", "bbq"]}]}, "must have at_least or at_most, or a value, or an order"),
        ({"published": [ENTRY | {"as": "ratio"}]}, "a ratio and a reduction need than or against"),
        ({"published": [ENTRY | {"than": "bbr", "against": "bbq"}]}, "either than or against, got 'bbr' and 'bbq'"),
        ({"published": [ENTRY | {"competitor": "bbr9"}]}, "unknown competitor 'bbr9'"),
        ({"published": [ENTRY | {"competitor": None}]}, "must name the competitor that has the value 0.5"),
        (
            {"published": [{**SHARES, "metric": "link_jain", "scenario": "s", "order": ["bbr"]}]},
            "two competitors or more",
        ),
        ({"published": [ENTRY | {"over": "sum"}]}, "unknown over 'sum'; known: each, mean, min, max"),
        ({"published": [ENTRY | {"value": None, "at_least": 2, "at_most": 1}]}, "at_least must be <= at_most"),
        ({"published": [ENTRY | {"metric": "convergence"}]}, r"unknown metric 'convergence' \(did you mean"),
        ({"published": [ENTRY | {"is": "above"}]}, "a claim: unknown key 'is'"),
        ({"published": [ENTRY | {"wording": 3}]}, "3 in wording"),
        ({"published": {"metric": "link_jain"}}, "a paper has published=.*: it must be a list"),
        ({"published": [SHARES | {"scenario": "s"}]}, r"'share\[2\]', but the flows of its scenario are 0 to 1"),
        ({"figure": FIGURE | {"y": []}}, "a figure has no y"),
        ({"figure": FIGURE | {"y": "share[2]"}}, r"'share\[2\]', but the flows of its scenario are 0 to 1"),
        ({"stated": ["ns-3", {"buffer": "1 BDP"}]}, "in stated: it must be a text"),
    ],
)
def test_a_mistake_is_refused_by_name(tmp_path: Path, plain: dict[str, Any], message: str) -> None:
    (tmp_path / "x.yaml").write_text(json.dumps({"title": "A paper", **plain}))
    scenarios = dict.fromkeys(("s", "t"), TWO_FLOWS)
    with pytest.raises(ValueError, match=message):
        load_paper("x", scenarios, NAMES, tmp_path)

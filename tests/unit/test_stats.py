"""Statistics over runs, and how they are written."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bbrgym.benchmark.claims import Claim
from bbrgym.benchmark.statistics import Estimate, bootstrap_interval, estimate, interquartile_mean, number_text
from bbrgym.benchmark.verdicts import Judgement, judge

finite = st.floats(-1e6, 1e6)


def test_interquartile_mean_leaves_out_the_outer_quarters() -> None:
    assert interquartile_mean([-1000.0, 1.0, 2.0, 1000.0]) == 1.5
    assert interquartile_mean([3.0]) == 3.0
    assert interquartile_mean([1.0, 2.0, 3.0]) == 2.0  # a quarter of three is less than one value
    values = np.random.default_rng(1).normal(size=(5, 11))
    for axis in (None, 0, 1):
        np.testing.assert_array_equal(interquartile_mean(values, axis), stats.trim_mean(values, 0.25, axis))


@given(st.lists(finite, min_size=2, max_size=30))
def test_mean_and_interval_lie_within_the_values_and_are_reproducible(values: list[float]) -> None:
    assert min(values) - 1e-6 <= interquartile_mean(values) <= max(values) + 1e-6
    low, high = bootstrap_interval(values, resamples=200)
    assert min(values) - 1e-6 <= low <= high <= max(values) + 1e-6
    assert bootstrap_interval(values, resamples=200) == (low, high)


@pytest.mark.parametrize("values", [[], [3.0], [3.0, math.nan]])
def test_one_value_has_no_interval(values: list[float]) -> None:
    assert all(math.isnan(end) for end in bootstrap_interval(values))


def test_strata_keep_the_difference_between_groups_out_of_the_interval() -> None:
    values = [0.0, 0.1, 10.0, 10.1]
    low, high = bootstrap_interval(values)
    low_stratified, high_stratified = bootstrap_interval(values, strata=["easy", "easy", "hard", "hard"])
    assert high - low > 5
    assert 5.0 <= low_stratified <= high_stratified <= 5.1


@pytest.mark.parametrize(
    ("values", "arguments", "message"),
    [
        ([1.0, 2.0], {"confidence": 1.0}, r"confidence must be in \(0, 1\), got 1\.0"),
        ([1.0, 2.0], {"resamples": 0}, "resamples must be an integer >= 1, got 0"),
        ([1.0, 2.0], {"strata": ["a"]}, "got 1 entries for 2 values"),
        ([[1.0, 2.0]], {}, "one dimension"),
    ],
)
def test_bad_arguments_are_refused(values: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(values, **arguments)


def test_an_estimate_leaves_out_missing_values_and_their_strata() -> None:
    values, strata = [1.0, math.nan, 2.0, 4.0], ["a", "b", "a", "c"]
    found = estimate(values, strata=strata)
    assert found == (7 / 3, *bootstrap_interval([1.0, 2.0, 4.0], strata=["a", "a", "c"]), 3)
    assert estimate([2.0, 2.0], is_sample=False).text() == "2.00"
    assert estimate([1.0, 2.0, 3.0], strata=["a", "b", "c"])[:3] == pytest.approx(
        (2.0, math.nan, math.nan), nan_ok=True
    )
    assert estimate([math.nan]).text(".1f") == "-"
    assert estimate([0.0, 1.0], interquartile_mean).text(".0%") == "50% [0% 100%]"


@pytest.mark.parametrize(
    ("value", "form", "threshold", "text"),
    [
        (0.9496, ".1%", 0.95, "94.96%"),
        (0.95, ".1%", 0.95, "95.0%"),
        (0.94, ".1%", 0.95, "94.0%"),
        (0.95 + 1e-9, ".1%", 0.95, "95.0000001%"),
        (0.9999, "", 1, "0.9999"),
        (1.0001, "", 1, "1.0001"),
        (1, "", 1, "1.00"),
        (24.996, ".1f", 25, "24.996"),
        (0.04997, ".3f", 0.05, "0.04997"),
        (-0.04997, "+.3f", -0.05, "-0.04997"),
        (0.00499, ".2g", 0.005, "0.00499"),
        (0.00499999, "", 0.005, "0.00499999"),
        (math.nan, ".1%", 0.95, "-"),
        (math.inf, ".1f", 0.95, "inf"),
        (math.nextafter(0.95, 0), ".1%", 0.95, "94.99999999999999%"),
    ],
)
def test_a_number_has_the_digits_that_show_on_which_side_of_a_threshold_it_is(
    value: float, form: str, threshold: float, text: str
) -> None:
    assert number_text(value, form, [threshold]) == text


@given(
    st.floats(-2, 2), st.sampled_from(["", ".1%", ".0%", ".2f", "+.3f", ".3g"]), st.sampled_from([0.95, 1.0, 0.5, 0.02])
)
def test_the_text_of_any_number_is_on_its_side(value: float, form: str, threshold: float) -> None:
    text = number_text(value, form, [threshold])
    shown = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    assert (shown > threshold) <= (value >= threshold)
    assert (shown < threshold) <= (value <= threshold)


@pytest.mark.parametrize(
    ("measured", "text", "verdict"),
    [
        (Estimate(0.94996, math.nan, math.nan, 1), "94.996%, needed >= 95%", "fail"),
        (Estimate(0.951, 0.94998, 0.96, 3), "95.1% [94.998% 96.0%], needed >= 95%", "unclear"),
        (Estimate(0.95, 0.95, 0.96, 3), "95.0% [95.0% 96.0%], needed >= 95%", "pass"),
    ],
)
def test_a_verdict_can_be_checked_by_what_is_written_beside_it(measured: Estimate, text: str, verdict: str) -> None:
    criterion = Claim("link_utilisation", at_least=0.95, because="a test")
    judgement = Judgement(
        suite="s",
        scenario="s/one",
        criterion=criterion,
        competitor="bbr",
        measured=measured,
        verdict=judge(measured, at_least=0.95),
    )
    assert judgement.verdict == verdict
    assert f"{judgement.text}, needed {criterion.needed}" == text
    assert Claim("link_utilisation", at_least=0.99996, because="a test").needed == ">= 99.996%"


@pytest.mark.parametrize(
    ("value", "text"),
    [(9.999, "10.0"), (99.96, "100"), (123456, "123456"), (0.0123, "0.0123"), (0.0012, "0.0012"), (-math.inf, "-inf")],
)
def test_a_number_has_three_digits(value: float, text: str) -> None:
    assert number_text(value) == text

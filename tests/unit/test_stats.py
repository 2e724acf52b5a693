"""Statistics over runs, and how they are written."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bbrgym.benchmark.statistics import (
    bootstrap_interval,
    estimate,
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
)

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


def test_interval_has_about_its_nominal_coverage() -> None:
    random = np.random.default_rng(7)
    intervals = [bootstrap_interval(random.normal(5.0, 1.0, size=40), resamples=400) for _ in range(200)]
    coverage = np.mean([low <= 5.0 <= high for low, high in intervals])
    assert 0.89 <= coverage <= 0.98


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
        ([1.0, 2.0], {"confidence": 0.0}, r"confidence must be in \(0, 1\), got 0\.0"),
        ([1.0, 2.0], {"resamples": 0}, "resamples must be an integer >= 1, got 0"),
        ([1.0, 2.0], {"strata": ["a"]}, "got 1 entries for 2 values"),
        ([[1.0, 2.0]], {}, "one dimension"),
    ],
)
def test_bad_arguments_are_refused(values: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(values, **arguments)


def test_probability_of_improvement_by_hand() -> None:
    x, y = {"a": [1.0, 5.0, 3.0]}, {"a": [2.0, 4.0, 3.0]}
    # Paired: worse, better, equal. Unpaired: 1 beats none of three, 5 beats three, 3 beats one and equals one.
    assert probability_of_improvement(x, y).probability == pytest.approx((0 + 1 + 0.5) / 3)
    assert probability_of_improvement(x, y, is_paired=False).probability == pytest.approx((0 + 3 + 1.5) / 9)


def test_each_stratum_has_the_same_weight_and_a_stratum_of_one_side_none() -> None:
    x = {"many": [1.0] * 8, "few": [0.0, 0.0], "mine": [9.0]}
    y = {"many": [0.0] * 8, "few": [1.0, 1.0], "theirs": [9.0]}
    for is_paired in (True, False):
        assert probability_of_improvement(x, y, is_paired) == (0.5, 0.5, 0.5)


def test_unpaired_is_the_mann_whitney_statistic() -> None:
    random = np.random.default_rng(11)
    x, y = random.normal(size=13), random.normal(0.4, size=9)
    found = probability_of_improvement({0: x}, {0: y}, is_paired=False)
    assert found.probability == pytest.approx(stats.mannwhitneyu(x, y).statistic / (13 * 9))
    assert found.low < found.probability < found.high


def test_pairs_with_a_hole_are_left_out() -> None:
    x, y = {0: [1.0, math.nan, 3.0]}, {0: [2.0, 0.0, math.nan]}
    assert probability_of_improvement(x, y).probability == 0.0
    assert probability_of_improvement(x, y, is_paired=False).probability == pytest.approx((0 + 1 + 1 + 1) / 4)
    assert all(math.isnan(value) for value in probability_of_improvement({0: [math.nan]}, {0: [1.0]}))
    assert all(math.isnan(value) for value in probability_of_improvement({0: []}, {1: []}, is_paired=False))


def test_one_run_per_stratum_has_no_interval() -> None:
    probability, low, high = probability_of_improvement({0: [1.0], 1: [0.0]}, {0: [0.0], 1: [1.0]})
    assert probability == 0.5
    assert math.isnan(low)
    assert math.isnan(high)
    with pytest.raises(ValueError, match="equally many values, got 2 and 1 in 'a'"):
        probability_of_improvement({"a": [1.0, 2.0]}, {"a": [1.0]})


def test_performance_profile_by_hand() -> None:
    profile = performance_profile([0.2, 0.4, 0.4, 0.9, math.nan], [0.0, 0.2, 0.4, 0.9])
    np.testing.assert_allclose(profile.share, [1.0, 0.75, 0.25, 0.0])
    assert profile.low[0] == profile.high[0] == 1.0
    assert profile.low[1] <= 0.75 <= profile.high[1]


def test_a_profile_has_no_width_without_differences_in_a_stratum_or_without_values() -> None:
    profile = performance_profile([0.1, 0.1, 0.8, 0.8], [0.5], strata=["hard", "hard", "easy", "easy"])
    assert [values.tolist() for values in profile] == [[0.5]] * 3
    assert np.isnan(performance_profile([], [0.5])).all()


def test_an_estimate_leaves_out_missing_values_and_their_strata() -> None:
    values, strata = [1.0, math.nan, 2.0, 4.0], ["a", "b", "a", "c"]
    found = estimate(values, strata=strata)
    assert found == (7 / 3, *bootstrap_interval([1.0, 2.0, 4.0], strata=["a", "a", "c"]), 3)
    assert estimate([2.0, 2.0], is_sample=False).text() == "2.00"
    assert estimate([math.nan]).text(".1f") == "-"
    assert estimate([0.0, 1.0], interquartile_mean).text(".0%") == "50% [0% 100%]"

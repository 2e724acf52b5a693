"""Statistics over runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbrgym.baselines.stats import bootstrap_interval, interquartile_mean

finite = st.floats(-1e6, 1e6)


def test_interquartile_mean_leaves_out_the_outer_quarters() -> None:
    assert interquartile_mean([-1000.0, 1.0, 2.0, 1000.0]) == 1.5
    assert interquartile_mean([1.0, 2.0, 3.0]) == 2.0  # a quarter of three is less than one value


def test_interquartile_mean_along_an_axis_is_that_of_each_row() -> None:
    values = np.random.default_rng(1).normal(size=(5, 11))
    np.testing.assert_allclose(interquartile_mean(values, axis=1), [interquartile_mean(row) for row in values])


@given(st.lists(finite, min_size=1, max_size=30))
def test_interquartile_mean_lies_within_the_values(values: list[float]) -> None:
    assert min(values) - 1e-6 <= interquartile_mean(values) <= max(values) + 1e-6


@given(st.lists(finite, min_size=2, max_size=20))
def test_interval_is_ordered_within_the_values_and_the_same_again(values: list[float]) -> None:
    low, high = bootstrap_interval(values, resamples=200)
    assert min(values) - 1e-6 <= low <= high <= max(values) + 1e-6
    assert bootstrap_interval(values, resamples=200) == (low, high)


def test_another_seed_draws_other_resamples() -> None:
    values = np.random.default_rng(1).normal(size=30)
    assert bootstrap_interval(values, seed=0) != bootstrap_interval(values, seed=1)


@pytest.mark.parametrize("values", [[], [3.0], [3.0, math.nan]])
def test_one_value_has_no_interval(values: list[float]) -> None:
    assert all(math.isnan(end) for end in bootstrap_interval(values))


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    intervals = [bootstrap_interval(random.normal(5.0, 1.0, size=40), resamples=400) for _ in range(200)]
    coverage = np.mean([low <= 5.0 <= high for low, high in intervals])
    assert 0.89 <= coverage <= 0.98


def test_interval_narrows_with_confidence_and_with_data() -> None:
    values = np.random.default_rng(3).normal(size=100)
    low, high = bootstrap_interval(values)
    low_half, high_half = bootstrap_interval(values, confidence=0.5)
    low_few, high_few = bootstrap_interval(values[:10])
    assert high_half - low_half < high - low < high_few - low_few


def test_strata_keep_the_difference_between_groups_out_of_the_interval() -> None:
    values = [0.0, 0.1, 10.0, 10.1]
    low, high = bootstrap_interval(values)
    low_stratified, high_stratified = bootstrap_interval(values, strata=["easy", "easy", "hard", "hard"])
    assert high - low > 5
    assert 5.0 <= low_stratified <= high_stratified <= 5.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"confidence": 1.0}, r"confidence=1\.0"),
        ({"confidence": 0.0}, r"confidence=0\.0"),
        ({"resamples": 0}, "resamples=0"),
        ({"strata": ["a"]}, "strata has 1 entries for 2 values"),
    ],
)
def test_impossible_arguments_are_refused_by_name(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bootstrap_interval([1.0, 2.0], **arguments)  # type: ignore[arg-type]


def test_values_of_two_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="one dimension"):
        bootstrap_interval([[1.0, 2.0]])

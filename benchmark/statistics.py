"""Statistics over runs: estimates with bootstrap intervals, how they are written, and how two sets of runs compare.

The measures of Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from bbrgym.checks import check_integer, check_number

Array = npt.NDArray[np.float64]
Stratum = TypeVar("Stratum")
Statistic = Callable[..., Any]
"""Takes an array and `axis=`, and reduces that axis, as `numpy.mean` does."""


class Estimate(NamedTuple):
    """A statistic of the runs, its 95 % bootstrap interval (NaN if there is none), and the number of values."""

    value: float
    low: float
    high: float
    n: float

    def text(self, form: str = "") -> str:
        """Return `0.93 [0.91 0.95]`, each as `number_text` writes it; the value alone if there is no interval."""
        interval = f" [{number_text(self.low, form)} {number_text(self.high, form)}]"
        return number_text(self.value, form) + ("" if math.isnan(self.low) else interval)


def estimate(
    values: npt.ArrayLike,
    statistic: Statistic = np.mean,
    strata: Sequence[object] | None = None,
    is_sample: bool = True,
) -> Estimate:
    """Estimate a statistic, with `bootstrap_interval`.

    Args:
        values: shape (n,); NaN values are left out.
        statistic: what to estimate.
        strata: shape (n,), the group of each value, as in `bootstrap_interval`.
        is_sample: False if the values are one run, measured several times: an interval of width 0
            would claim certainty.
    """
    data = np.asarray(values, dtype=np.float64)
    is_known = ~np.isnan(data)
    known = data[is_known]
    if strata is not None:
        strata = [stratum for stratum, is_kept in zip(strata, is_known, strict=True) if is_kept]
    low, high = bootstrap_interval(known, statistic, strata=strata) if is_sample else (math.nan, math.nan)
    return Estimate(float(statistic(known)) if known.size else math.nan, low, high, known.size)


def number_text(value: float, form: str = "") -> str:
    """Return a number as readers see it; a dash for NaN.

    Args:
        value: the number.
        form: a format specification, as `.1f`, `.2%` or `+.3f`. Empty is three significant digits without an exponent,
            or two if it is below 0.01.
    """
    if math.isnan(value):
        return "-"
    if form:
        return format(value, form)
    size = abs(value)
    if 0 < size < 0.01:
        return f"{value:.2g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(size))) if size else 2}f}"


def interquartile_mean(values: npt.ArrayLike, axis: int | None = None) -> Any:
    """Return the mean of the middle half of the values, without the lowest and the highest quarter.

    It is as robust to a few bad runs as the median, with less variance.

    Args:
        values: any shape, at least one value.
        axis: the axis to reduce; None for all values.

    Returns:
        A float for axis None, else the array without that axis.
    """
    data = np.asarray(values, dtype=np.float64)
    if axis is None:
        data, axis = data.ravel(), 0
    count = data.shape[axis]
    cut = count // 4
    middle = (slice(None),) * (axis % data.ndim) + (slice(cut, count - cut),)
    return np.partition(data, (cut, count - cut - 1), axis)[middle].mean(axis=axis)


def bootstrap_interval(
    values: npt.ArrayLike,
    statistic: Statistic = np.mean,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    strata: Sequence[object] | None = None,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a statistic.

    With very few values it is too narrow (three seeds have 27 possible resamples, ten of them different up to order).
    Only more seeds cure that, so show the number of values next to it.

    Args:
        values: shape (n,); NaN values are left out.
        statistic: what is estimated.
        confidence: nominal coverage, in (0, 1).
        resamples: number of resamples.
        seed: decides the resamples, so equal arguments give equal intervals.
        strata: shape (n,), the group of each value, for example its scenario. Resamples are then drawn within each
            group, so that each has as many values of a group as the data.

    Returns:
        (low, high); (nan, nan) for fewer than two values, which say nothing of the spread.

    Raises:
        ValueError: an argument is out of range, or `strata` has another length than `values`.
    """
    resamples = _check(confidence, resamples)
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1:
        raise ValueError(f"values must have one dimension, got shape {data.shape}")
    groups = np.zeros(data.size, dtype=np.intp)
    if strata is not None:
        if len(strata) != data.size:
            raise ValueError(f"strata must have one entry per value, got {len(strata)} entries for {data.size} values")
        number: dict[object, int] = {}
        groups = np.array([number.setdefault(name, len(number)) for name in strata], dtype=np.intp)
    is_known = ~np.isnan(data)
    data, groups = data[is_known], groups[is_known]
    if data.size < 2:
        return float("nan"), float("nan")
    generator = np.random.default_rng(seed)
    drawn = [
        members[generator.integers(members.size, size=(resamples, members.size))]
        for members in (data[groups == group] for group in np.unique(groups))
    ]
    low, high = _ends(statistic(np.concatenate(drawn, axis=1), axis=1), confidence)
    return float(low), float(high)


class Improvement(NamedTuple):
    """Probability that one is better than the other, in [0, 1], and its interval; NaN without values."""

    probability: float
    low: float
    high: float


def probability_of_improvement(
    x: Mapping[Stratum, npt.ArrayLike],
    y: Mapping[Stratum, npt.ArrayLike],
    is_paired: bool = True,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Improvement:
    """Return the probability that a run of x has more than a run of y in the same stratum, with a bootstrap interval.

    In each stratum it is the share of pairs of runs in which x has more; equal pairs count half. The result is the mean
    over the strata, so each stratum has the same weight however many runs it has. Paired: values at the same place in
    the stratum (for example the same seed) form the pairs, which are resampled as pairs. Unpaired: every run of x forms
    a pair with every run of y (the Mann-Whitney statistic U / (n m)), and x and y are resampled independently.

    Args:
        x: the values of the runs by stratum (for example scenario), shape (n,); more is better.
        y: what x is compared with, shape (n,), or (m,) if unpaired. Strata that only one side has are left out.
        is_paired: whether values at the same place belong together. Pairs (unpaired: values) with NaN are left out.
        confidence: nominal coverage, in (0, 1).
        resamples: number of resamples, drawn within the strata.
        seed: decides the resamples, so equal arguments give equal intervals.

    Raises:
        ValueError: an argument is out of range, or paired values differ in number.
    """
    resamples = _check(confidence, resamples)
    generator = np.random.default_rng(seed)
    values, estimates, is_sample = [], [], False
    for stratum in x:
        if stratum not in y:
            continue
        ours, theirs = (np.asarray(side[stratum], dtype=np.float64) for side in (x, y))
        if is_paired:
            if ours.shape != theirs.shape:
                raise ValueError(f"pairs need equally many values, got {ours.size} and {theirs.size} in {stratum!r}")
            wins = _wins(ours, theirs)[~np.isnan(ours) & ~np.isnan(theirs)]
            drawn = generator.integers(max(wins.size, 1), size=(resamples, wins.size))
            means = wins[drawn].mean(axis=1) if wins.size else None
        else:
            ours, theirs = ours[~np.isnan(ours)], theirs[~np.isnan(theirs)]
            wins = _wins(ours[:, None], theirs[None, :])
            ours_drawn, theirs_drawn = (
                _counts(generator.integers(max(size, 1), size=(resamples, size)), size) for size in wins.shape
            )
            # The mean of each resample's table of pairs, from how often each run is in the resample.
            means = ((ours_drawn @ wins) * theirs_drawn).sum(axis=1) / wins.size if wins.size else None
        if means is not None:
            values.append(wins.mean())
            estimates.append(means)
            is_sample |= wins.size > 1
    if not values:
        return Improvement(float("nan"), float("nan"), float("nan"))
    # One run per stratum says nothing of the spread.
    low, high = _ends(np.mean(estimates, axis=0), confidence) if is_sample else (float("nan"), float("nan"))
    return Improvement(float(np.mean(values)), float(low), float(high))


class Profile(NamedTuple):
    """A performance profile: three arrays of shape (thresholds,)."""

    share: Array
    low: Array
    high: Array


def performance_profile(
    scores: npt.ArrayLike,
    thresholds: npt.ArrayLike,
    strata: Sequence[object] | None = None,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Profile:
    """Return the share of runs that score above each threshold, with pointwise percentile bootstrap intervals.

    A line that is above another everywhere is stochastically dominant: at every score, more of its runs reach it.

    Args:
        scores: shape (n,); NaN values are left out.
        thresholds: shape (t,).
        strata: shape (n,), the group of each score, as in `bootstrap_interval`.
        confidence: nominal coverage at each single threshold, in (0, 1).
        resamples: number of resamples.
        seed: decides the resamples.

    Returns:
        The shares and the ends of their intervals. Shares are NaN without scores, the ends for fewer than two.

    Raises:
        ValueError: as `bootstrap_interval`.
    """
    values = np.asarray(scores, dtype=np.float64)
    levels = np.asarray(thresholds, dtype=np.float64)
    is_known = ~np.isnan(values)
    known = values[is_known]
    kept = None if strata is None else [name for name, is_kept in zip(strata, is_known, strict=True) if is_kept]
    # Equal arguments draw equal resamples, so every threshold has the same runs.
    ends = [
        bootstrap_interval((known > level).astype(np.float64), np.mean, confidence, resamples, seed, kept)
        for level in levels
    ]
    share = (known[:, None] > levels).mean(axis=0) if known.size else np.full(levels.shape, np.nan)
    low, high = np.array(ends, dtype=np.float64).reshape(-1, 2).T
    return Profile(share, low, high)


def _wins(x: Array, y: Array) -> Array:
    """Return 1 where x has more, 1/2 where they are equal, else 0."""
    return np.where(x > y, 1.0, np.where(x == y, 0.5, 0.0))


def _counts(drawn: npt.NDArray[np.intp], size: int) -> Array:
    """Return how often each of `size` members is in each resample, shape (resamples, size)."""
    return np.stack([np.bincount(row, minlength=size) for row in drawn]).astype(np.float64)


def _ends(estimates: Array, confidence: float) -> Array:
    tail = (1 - confidence) / 2
    ends: Array = np.quantile(estimates, [tail, 1 - tail])
    return ends


def _check(confidence: float, resamples: int) -> int:
    check_number("confidence", confidence, above=0, below=1)
    return check_integer("resamples", resamples, at_least=1)

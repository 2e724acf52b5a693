"""Statistics over runs: the interquartile mean, bootstrap intervals, and how two sets of runs compare.

The measures of Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]
Stratum = TypeVar("Stratum")
Statistic = Callable[..., Any]
"""Takes an array and `axis=`, and reduces that axis, as `numpy.mean` does."""


def interquartile_mean(values: npt.ArrayLike, axis: int | None = None) -> Any:
    """Mean of the middle half of the values: the lowest and the highest quarter are left out.

    As robust to a few bad runs as the median, with less variance.

    Args:
        values: any shape, one value at least.
        axis: over which axis; None for all values.

    Returns:
        A float for axis None, else the array without that axis.
    """
    return stats.trim_mean(np.asarray(values, dtype=np.float64), 0.25, axis=axis)


def bootstrap_interval(
    values: npt.ArrayLike,
    statistic: Statistic = np.mean,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    strata: Sequence[object] | None = None,
) -> tuple[float, float]:
    """Percentile bootstrap interval of a statistic.

    With very few values it is too narrow (three seeds have 27 possible resamples, ten different up to order), which
    no method cures but more seeds: show it, and show the number of values beside it.

    Args:
        values: shape (n,); NaN values are left out.
        statistic: what is estimated.
        confidence: coverage that is aimed at, in (0, 1).
        resamples: how many resamples are drawn.
        seed: decides the resamples: equal arguments give equal intervals.
        strata: shape (n,), the group of each value. Resamples are then drawn within each group, so that each
            has as many values of a group as the data have (scenarios, say, of different difficulty).

    Returns:
        (low, high); (nan, nan) unless there are two values or more, for one value says nothing of the spread.

    Raises:
        ValueError: of a confidence or a number of resamples that is not possible, or of strata of another length.
    """
    _check(confidence, resamples)
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1:
        raise ValueError(f"values has shape {data.shape}: values must have one dimension")
    groups = np.zeros(data.size, dtype=np.intp)
    if strata is not None:
        if len(strata) != data.size:
            raise ValueError(f"strata has {len(strata)} entries for {data.size} values: give one a value")
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
    """How probable it is that one is better than the other, in [0, 1], and its interval; NaN where nothing is known."""

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
    """Probability that a run of x has more than a run of y of the same stratum, and its percentile bootstrap interval.

    In each stratum it is the share of pairs of runs in which x has more, an equal pair counting half; over the strata
    it is the mean, so that each has the same weight however many runs it has. Paired, the pairs are those of the same
    place in the stratum (the same seed, say), and they are resampled as pairs. Unpaired, every run of x makes a pair
    with every run of y, which is the Mann-Whitney statistic U / (n m), and x and y are resampled independently.

    Args:
        x: by stratum (scenario, say) the values of its runs, shape (n,); more is better.
        y: the same of what x is compared with, shape (n,), unpaired (m,). Strata that only one of them has are left
            out.
        is_paired: whether values of the same place belong together. A pair with a NaN in it is left out; unpaired, a
            NaN is.
        confidence: coverage that is aimed at, in (0, 1).
        resamples: how many resamples are drawn, within the strata.
        seed: decides the resamples: equal arguments give equal intervals.

    Raises:
        ValueError: of a confidence or a number of resamples that is not possible, or of pairs that are none because
            the lengths differ.
    """
    _check(confidence, resamples)
    generator = np.random.default_rng(seed)
    values, estimates, is_sample = [], [], False
    for stratum in x:
        if stratum not in y:
            continue
        ours, theirs = (np.asarray(side[stratum], dtype=np.float64) for side in (x, y))
        if is_paired:
            if ours.shape != theirs.shape:
                raise ValueError(f"{stratum!r} has {ours.size} and {theirs.size} values: pairs need as many of each")
            wins = _wins(ours, theirs)[~np.isnan(ours) & ~np.isnan(theirs)]
            drawn = generator.integers(max(wins.size, 1), size=(resamples, wins.size))
            means = wins[drawn].mean(axis=1) if wins.size else None
        else:
            ours, theirs = ours[~np.isnan(ours)], theirs[~np.isnan(theirs)]
            wins = _wins(ours[:, None], theirs[None, :])
            ours_drawn, theirs_drawn = (
                _counts(generator.integers(max(size, 1), size=(resamples, size)), size) for size in wins.shape
            )
            # Of each resample the mean of its table of pairs, from how often each run is in it.
            means = ((ours_drawn @ wins) * theirs_drawn).sum(axis=1) / wins.size if wins.size else None
        if means is not None:
            values.append(wins.mean())
            estimates.append(means)
            is_sample |= wins.size > 1
    if not values:
        return Improvement(float("nan"), float("nan"), float("nan"))
    # One run a stratum says nothing of the spread.
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
    """The share of runs that score above each threshold, with pointwise percentile bootstrap intervals.

    One line above another everywhere is stochastic dominance: whatever score one asks for, more runs have it.

    Args:
        scores: shape (n,); NaN values are left out.
        thresholds: shape (t,).
        strata: shape (n,), the group of each score, as in `bootstrap_interval`.
        confidence: coverage that is aimed at, in (0, 1), at each threshold by itself.
        resamples: how many resamples are drawn.
        seed: decides the resamples.

    Returns:
        The shares and the ends of their intervals; NaN without scores, and the ends with less than two.

    Raises:
        ValueError: as `bootstrap_interval`.
    """
    values = np.asarray(scores, dtype=np.float64)
    levels = np.asarray(thresholds, dtype=np.float64)
    is_known = ~np.isnan(values)
    known = values[is_known]
    kept = None if strata is None else [name for name, is_kept in zip(strata, is_known, strict=True) if is_kept]
    # Equal arguments draw equal resamples, so these are the same runs at every threshold.
    ends = [
        bootstrap_interval((known > level).astype(np.float64), np.mean, confidence, resamples, seed, kept)
        for level in levels
    ]
    share = (known[:, None] > levels).mean(axis=0) if known.size else np.full(levels.shape, np.nan)
    low, high = np.array(ends, dtype=np.float64).reshape(-1, 2).T
    return Profile(share, low, high)


def _wins(x: Array, y: Array) -> Array:
    """1 where x has more, 1/2 where they are equal, else 0."""
    return np.where(x > y, 1.0, np.where(x == y, 0.5, 0.0))


def _counts(drawn: npt.NDArray[np.intp], size: int) -> Array:
    """How often each of `size` members is in each resample, shape (resamples, size)."""
    return np.stack([np.bincount(row, minlength=size) for row in drawn]).astype(np.float64)


def _ends(estimates: Array, confidence: float) -> Array:
    tail = (1 - confidence) / 2
    ends: Array = np.quantile(estimates, [tail, 1 - tail])
    return ends


def _check(confidence: float, resamples: int) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence!r} is not possible: confidence must be in (0, 1)")
    if resamples < 1:
        raise ValueError(f"resamples={resamples!r} is not possible: resamples must be at least 1")

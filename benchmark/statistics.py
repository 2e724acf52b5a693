"""Statistics over runs: estimates with bootstrap intervals, and how they are written.

The measures of Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bbrgym.checks import check_integer, check_number

Array = npt.NDArray[np.float64]
Statistic = Callable[..., Any]
"""Takes an array and `axis=`, and reduces that axis, as `numpy.mean` does."""


class Estimate(NamedTuple):
    """A statistic of the runs, its 95 % bootstrap interval (NaN if there is none), and the number of values."""

    value: float
    low: float
    high: float
    n: float

    def text(self, form: str = "", beside: Sequence[float] = ()) -> str:
        """Return `0.93 [0.91 0.95]`, each as `number_text` writes it; the value alone if there is no interval."""
        interval = f" [{number_text(self.low, form, beside)} {number_text(self.high, form, beside)}]"
        return number_text(self.value, form, beside) + ("" if math.isnan(self.low) else interval)


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
        strata: shape (n,), the group of each value, as in `bootstrap_interval`. Where each group has a single value,
            none of them is a sample.
        is_sample: False if the values are one run, measured several times: an interval of width 0
            would claim certainty.
    """
    data = np.asarray(values, dtype=np.float64)
    is_known = ~np.isnan(data)
    known = data[is_known]
    if strata is not None:
        strata = [stratum for stratum, is_kept in zip(strata, is_known, strict=True) if is_kept]
        is_sample = is_sample and (known.size <= 1 or len(set(strata)) < known.size)
    low, high = bootstrap_interval(known, statistic, strata=strata) if is_sample else (math.nan, math.nan)
    return Estimate(float(statistic(known)) if known.size else math.nan, low, high, known.size)


def number_text(value: float, form: str = "", beside: Sequence[float] = ()) -> str:
    """Return a number as readers see it; a dash for NaN.

    Args:
        value: the number.
        form: a format specification, as `.1f`, `.2%` or `+.3f`. Empty is three significant digits without an exponent,
            or two if it is below 0.01, with an exponent below 0.0001.
        beside: thresholds that readers compare it with. The number has as many more digits as it takes to see on which
            side of them it is.
    """
    if math.isnan(value):
        return "-"
    text = _text(value, form)
    for more in range(1, 17):  # a float has 17 significant digits
        if all(_is_on_its_side(text, value, threshold) for threshold in beside):
            break
        text = _text(value, form, more)
    return text


def _text(value: float, form: str, more: int = 0) -> str:
    """Return a number with more digits than `number_text` gives it by itself."""
    if math.isinf(value):
        return str(value)
    if form:
        return format(value, re.sub(r"\.(\d+)", lambda digits: f".{int(digits[1]) + more}", form))
    size = abs(float(f"{value:.3g}"))  # 9.999 is 10.0
    if 0 < size < 0.01:
        return f"{value:.{2 + more}g}"
    return f"{value:.{(max(0, 2 - math.floor(math.log10(size))) if size else 2) + more}f}"


def _is_on_its_side(text: str, value: float, threshold: float) -> bool:
    """Return whether a text of a number is above or below a threshold as the number itself is."""
    if value == threshold or not math.isfinite(value):
        return True
    shown = Decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    least = Decimal(repr(float(threshold)))
    return shown > least if value > threshold else shown < least


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


def _ends(estimates: Array, confidence: float) -> Array:
    tail = (1 - confidence) / 2
    ends: Array = np.quantile(estimates, [tail, 1 - tail])
    return ends


def _check(confidence: float, resamples: int) -> int:
    check_number("confidence", confidence, above=0, below=1)
    return check_integer("resamples", resamples, at_least=1)

"""Two verdicts on what a paper published: whether the order is as published, and whether the value is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from bbrgym.benchmark.published import PublishedComparison

NEAR: Final = 0.1
"""A measured value agrees with a published one from which it differs by at most this part."""
MEANING: Final = (
    f"Order: the values have the published order. Value: within {100 * NEAR:.0f} % of the published number, or on the "
    "right side of the published bound."
)


@dataclass(frozen=True)
class PaperVerdicts:
    """Two verdicts on a published entry: `yes`, `no`, `5 of 6 pairs`, `unclear`, or `-` where there is none.

    Attributes:
        order: whether the values have the published order, among the paper's other values of the same quantity.
        value: whether the value is within `NEAR` of the published one, or keeps the published bound.
    """

    order: str
    value: str

    @classmethod
    def of(cls, row: PublishedComparison) -> PaperVerdicts:
        """Return the verdicts on a row of `compare`."""
        if row.claim.order:
            return cls(order=row.agreement, value="-")
        if row.claim.value is None:  # it has bounds
            return cls(order="-", value=row.agreement)
        return cls(order=row.agreement, value=value_verdict(row.claim.value, row.value, row.ratio))


def value_verdict(published: float, measured: float, ratio: float) -> str:
    """Return whether a measured value is within `NEAR` of the published one; `-` without a measured value."""
    if math.isnan(measured):
        return "-"
    return "yes" if measured == published or abs(ratio - 1) <= NEAR else "no"

"""How figures look: fonts, colours and line styles, and the height of axes.

Environments draw with it as pages do (`bbrgym.envs.render`, `bbrgym.benchmark.style`). It needs no matplotlib.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALL: Final = 9
"""Size of names, numbers and ticks in points; nothing is smaller."""
STYLE: Final = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "figure.titlesize": 11,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "lines.linewidth": 1.3,
    "text.parse_math": False,  # Names may contain dollar signs.
    "svg.fonttype": "none",  # Text stays text: smaller, sharp, searchable.
    "svg.hashsalt": "bbrgym",  # Equal figures give equal files.
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica", "sans-serif"],
}
# Distinct for the common forms of colour blindness: Okabe and Ito's set (2008) without its yellow, which is too light
# for lines on white, then the dark colours of Tol's "muted".
COLOURS: Final = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00",
    "#332288", "#882255", "#117733", "#999933", "#AA4499", "#44AA99",
    "#661100",
)  # fmt: skip
LINES: Final[tuple[Any, ...]] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))


def fit_y(axes: Axes, least: float = 0.05, room: float = 0.08) -> None:
    """Fit the y-axis to the data of all axes that share it: from 0, or around values that are near each other.

    Args:
        axes: one of them; no value is below 0.
        least: how much the axis spans at least, as a part of the highest value: small differences look small. With 1
            it begins at 0.
        room: how much is free above the data, as a part of the span.
    """
    limits = [other.dataLim for other in axes.get_shared_y_axes().get_siblings(axes) if other.has_data()]
    high = max((limit.y1 for limit in limits if math.isfinite(limit.y1)), default=0.0) or 1.0
    low = min((limit.y0 for limit in limits if math.isfinite(limit.y0)), default=0.0)
    span = max(high - low, least * high)
    if 2 * span > high:
        axes.set_ylim(0, (1 + room) * high)
    else:
        middle, half = (low + high) / 2, (0.5 + room) * span
        axes.set_ylim(middle - half, middle + half)

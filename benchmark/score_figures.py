"""The pictures of a score: the candidate beside the yardsticks, its regret, and what happened where it was worst."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from bbrgym.benchmark import plots
from bbrgym.benchmark.score import WORST, Score
from bbrgym.benchmark.style import (
    COLOURS,
    OTHERS,
    UNREGISTERED,
    Mark,
    empty_figure,
    marks_of,
    name_points,
    styled,
)
from bbrgym.envs.trace import Trace
from bbrgym.extras import optional

with optional("a plot"):
    from matplotlib.figure import Figure

_CAUSES: Final = {
    "fairness": Mark(COLOURS[0], "o"),
    "utilisation": Mark(COLOURS[1], "s"),
    "delay": Mark(COLOURS[2], "^"),
    "failed": Mark("#000000", "X"),
}
"""What a candidate lacks most in a scenario."""


def marks_of_score(score: Score) -> dict[str, Mark]:
    """Return the mark of each competitor in all figures of a page; the candidate is black."""
    others = [name for name in score.runs if name != score.name]
    # With a second name that is not registered, no yardstick is black.
    return {**marks_of([*others, score.name, ""]), score.name: UNREGISTERED}


@styled
def utilisation_against_delay(score: Score, marks: Mapping[str, Mark]) -> Figure:
    """Plot mean utilisation against mean delay, of the candidate and the yardsticks; up and right is better."""
    means = score.table[["delay", "utilisation"]].groupby(level="competitor").mean()
    figure = empty_figure(4.4)
    axes = figure.subplots()
    points = {}
    for name in reversed(list(score.runs)):
        delay, utilisation = means.loc[[name]].to_numpy(dtype=np.float64)[0]
        if not np.isfinite([delay, utilisation]).all():
            continue
        points[name] = (delay, 100 * utilisation)
        marks[name].line(axes, [delay], [100 * utilisation], size=11 if name == score.name else 7)
    if points:
        axes.set_xscale("symlog", linthresh=0.1)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlim(left=0)
        axes.margins(x=0.12, y=0.12)
        axes.invert_xaxis()
        name_points(axes, points, marks)
    axes.set_xlabel("mean delay over the base RTT (1: the RTT doubles), less is to the right")
    axes.set_ylabel("utilisation (%)")
    return figure


@styled
def regret_by_scenario(score: Score) -> Figure:
    """Plot the candidate's regret in each scenario, a row per family, by what it lacks; the worst are named."""
    found = [(one, "failed" if one.scenario in score.failures else one.cause) for one in score.regrets]
    families = list(dict.fromkeys(draw.name.rpartition("-")[0] for draw in score.draws if draw.roles is None))
    figure = empty_figure(1.1 + 0.5 * max(1, len(families)))
    axes = figure.subplots()
    axes.axvline(0, color="#888888", linewidth=0.9)
    for cause, mark in _CAUSES.items():
        of_cause = [one for one, its in found if its == cause and one.regret.value > 0]
        if of_cause:
            places = [_row(one.scenario, families) for one in of_cause]
            values = [one.regret.value for one in of_cause]
            label = cause if cause == "failed" else f"loses by {cause}"
            mark.line(axes, values, places, size=6, linestyle="none", label=label)
    best = [one for one, _ in found if one.regret.value <= 0]
    if best:
        places = [_row(one.scenario, families) for one in best]
        own = Mark(OTHERS.colour, "D")
        own.line(axes, [one.regret.value for one in best], places, size=5, linestyle="none", label="the best itself")
    axes.set_yticks(range(len(families)), families)
    axes.set_ylim(len(families) - 0.4, -0.6)
    axes.set_xlabel("regret: fair power that it lacks to the best yardstick there (0: none is better)")
    worst = {
        one.scenario: (one.regret.value, _row(one.scenario, families))
        for one in score.regrets[:WORST]
        if one.regret.value > 0
    }
    name_points(axes, worst, dict.fromkeys(worst, UNREGISTERED))
    figure.legend(loc="outside upper left", ncols=5, handletextpad=0.2, columnspacing=1.0)
    return figure


def _row(scenario: str, families: list[str]) -> float:
    """Return the height of a scenario in the row of its family: neighbours are apart, by their numbers."""
    family, _, number = scenario.rpartition("-")
    return families.index(family) + 0.12 * (int(number) % 5 - 2)


def over_time(traces: Mapping[str, Trace], marks: Mapping[str, Mark], roles: range | tuple[int, ...]) -> Figure:
    """Plot the throughput of each flow and the queueing delay of runs of one scenario, side by side."""
    columns = ("throughput_mbps", "link_queue_mean_ms")
    return plots.over_time(traces, columns, marks=marks, roles=roles)

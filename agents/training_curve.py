"""The picture of a training: its score over steps, and what else tells whether it learns. It loads matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bbrgym.agents.tracking import read_metrics
from bbrgym.agents.yardsticks import Yardstick

REWARD: Final = "eval/reward"
_EVALUATION: Final = "#d55e00"
_TRAINING: Final = "#0072b2"
_DASHES: Final = ((6, 2), (3, 2), (1, 1.5))
_IN_TRAINING: Final = {
    "search/fitness_mean": ("fitness of candidates", "mean of a generation, in its own scenarios"),
    "distil/regret": ("regret in training", "mean of an epoch"),
}
"""What a learner that does not learn from rewards logs in training: the name of its axis, and of its line."""


def draw_training_curve(directory: Path, score: str, yardsticks: Sequence[Yardstick]) -> Figure:
    """Return the picture of a training.

    Its first axes have the score by which `best/` is chosen. If that is not the reward, the reward has axes of its own,
    and so has what was logged in training: their values cannot be compared.

    Args:
        directory: the run's folder.
        score: the metric of that score, such as `eval/fair_power`.
        yardsticks: lines beside the reward.
    """
    found = _points(directory, (score, REWARD, "rollout/reward", *_IN_TRAINING))
    others = [name for name in _IN_TRAINING if found[name]]
    has_own_score = score != REWARD
    count = 1 + has_own_score + len(others)
    figure = Figure(figsize=(7, 2.9 + 1.7 * count), layout="constrained")
    every = figure.subplots(count, sharex=True, squeeze=False)[:, 0].tolist()
    axes, of_reward, of_others = every[0], every[int(has_own_score)], every[count - len(others) :]
    lines: list[Line2D] = []
    if has_own_score:
        lines += _draw(axes, found[score], "o-", _EVALUATION, "evaluation")
        axes.set_ylabel(_words(score))
    if found["rollout/reward"]:
        lines += _draw(of_reward, found["rollout/reward"], "-", _TRAINING, "training, exploring")
    of_evaluations = _draw(of_reward, found[REWARD], "o-", _EVALUATION, "evaluation")
    lines += [] if has_own_score else of_evaluations
    of_reward.set_ylabel("mean reward per step")
    for yardstick, dashes in zip(yardsticks, _DASHES, strict=False):
        lines.append(of_reward.axhline(yardstick.reward, color="#444444", lw=1.1, dashes=dashes, label=yardstick.text))
    for name, own in zip(others, of_others, strict=True):
        unit, label = _IN_TRAINING[name]
        lines += _draw(own, found[name], "-", _TRAINING, label)
        own.set_ylabel(unit)
    for each in every:
        each.grid(alpha=0.3)
    axes.set_title(f"{directory.name}\nbest/ has the highest {_words(score)}")
    every[-1].set_xlabel("steps (decisions of all flows)")
    figure.legend(handles=lines, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _points(directory: Path, names: Sequence[str]) -> dict[str, dict[int, float]]:
    """Return the logged values by name and step."""
    found: dict[str, dict[int, float]] = {name: {} for name in names}
    for line in read_metrics(directory):
        for name in found.keys() & line["metrics"].keys():
            found[name][line["step"]] = line["metrics"][name]
    return found


def _draw(axes: Axes, points: dict[int, float], style: str, color: str, label: str) -> list[Line2D]:
    steps = sorted(points)
    return axes.plot(steps, [points[step] for step in steps], style, color=color, label=label)


def _words(score: str) -> str:
    """Return the name of an axis: `fair power`."""
    name = score.removeprefix("eval/").replace("_", " ")
    return "mean reward per step" if score == REWARD else name

"""The figures of papers, drawn of what was measured."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from paper_experiment import made_up_results

from bbrgym import Flow, Scenario
from bbrgym.benchmark.style import mark_of
from bbrgym.benchmark.tables import summary_table
from studies.papers.figures import paper_figure
from studies.papers.published import PaperFigure, Published

FLOWS = (Flow(rtt_ms=10), Flow(rtt_ms=50))
SCENARIOS = {
    "deep6": Scenario(rate_mbps=20, loss=0.06, buffer_bdp=5, flows=FLOWS),
    "deep0": Scenario(rate_mbps=20, loss=0.0, buffer_bdp=5, flows=FLOWS),
    "shallow6": Scenario(rate_mbps=20, loss=0.06, buffer_bdp=1, flows=FLOWS),
    "shallow0": Scenario(rate_mbps=20, loss=0.0, buffer_bdp=1, flows=FLOWS),
}
PUBLISHED = (
    Published("link_jain", ("deep6",), "bbr", 0.55),
    Published("link_jain", ("deep0",), "bbq", 0.65, bound="above"),
    Published("link_jain", ("shallow0",), "bbr", 0.75),
    # None of these is a point of a figure: another metric, several scenarios, no plain value, an order.
    Published("throughput_mbps[0]", ("deep0",), "bbr", 5.5),
    Published("link_jain", ("deep0", "deep6"), "bbr", 0.85),
    Published("link_jain", ("deep0",), "bbq", 0.95, form="ratio", against="bbr"),
    Published("link_jain", ("deep0",), order=("bbr", "bbq")),
)


@pytest.fixture(scope="module")
def results() -> pd.DataFrame:
    return made_up_results(SCENARIOS)


@pytest.fixture(scope="module")
def table(results: pd.DataFrame) -> pd.DataFrame:
    return summary_table(results)


def drawn(results: pd.DataFrame, published: tuple[Published, ...] = (), **fields: Any) -> Figure:
    return paper_figure(PaperFigure(title="Figure 1", **fields), results, SCENARIOS, published)


def visible(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_visible()]


def hollow(axes: Axes) -> set[tuple[float, float, str]]:
    """The published values in a panel: x, y and the sign."""
    return {
        (float(np.asarray(line.get_xdata())[0]), float(np.asarray(line.get_ydata())[0]), str(line.get_marker()))
        for line in axes.get_lines()
        if line.get_markerfacecolor() == "white"
    }


def lines_of(axes: Axes) -> list[Line2D]:
    return [line for line in axes.get_lines() if line.get_markerfacecolor() != "white" and line.get_marker() != "None"]


def mean(table: pd.DataFrame, scenario: str, competitor: str, metric: str, statistic: str = "mean") -> float:
    return float(table[metric, statistic][scenario, competitor])


def test_lines_go_along_the_axis_and_panels_apart(results: pd.DataFrame, table: pd.DataFrame) -> None:
    figure = drawn(results, PUBLISHED, y=("link_jain",), x="loss", panel="buffer_bdp")
    panels = visible(figure)
    assert [axes.get_title(loc="left") for axes in panels] == ["buffer of 1 BDP", "buffer of 5 BDP"]
    assert [tick.get_text() for tick in panels[0].get_xticklabels()] == ["0", "6"]
    for axes, depth in zip(panels, ("shallow", "deep"), strict=True):
        assert axes.get_xlabel() == "random loss (%)"
        for line, competitor in zip(lines_of(axes), ("bbr", "bbq"), strict=True):
            expected = [mean(table, f"{depth}{loss}", competitor, "link_jain") for loss in (0, 6)]
            assert list(np.asarray(line.get_xdata())) == [0.0, 0.06]
            assert list(np.asarray(line.get_ydata())) == pytest.approx(expected)
            assert line.get_color() == mark_of(competitor).colour
    assert panels[0].get_ylim() == panels[1].get_ylim()
    assert panels[0].get_ylabel() == "Jain's fairness index"


def test_published_values_stand_where_they_belong(results: pd.DataFrame) -> None:
    figure = drawn(results, PUBLISHED, y=("link_jain",), x="loss", panel="buffer_bdp")
    shallow, deep = visible(figure)
    assert hollow(shallow) == {(0.0, 0.75, "D")}
    assert hollow(deep) == {(0.06, 0.55, "D"), (0.0, 0.65, "^")}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["published", "published: above"]


def test_two_scenarios_are_never_one_point(results: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"'deep0' and 'shallow0' at the same loss=0: give it a panel"):
        drawn(results, y=("link_jain",), x="loss")

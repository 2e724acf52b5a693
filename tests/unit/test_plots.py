"""Plots of runs over time: what their panels show."""

from collections.abc import Sequence

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from bbrgym import Flow, Scenario, Trace, simulate
from bbrgym.benchmark.plots import over_time
from bbrgym.benchmark.style import mark_of
from bbrgym.envs.columns import FLOW_COLUMNS

COLUMNS = ("throughput_mbps", "rtt_mean_ms", "link_queue_mean_ms")


def visible(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_visible()]


def has_line(axes: Axes, values: Sequence[float]) -> bool:
    return any(np.array_equal(line.get_ydata(), values) for line in axes.get_lines())


@pytest.fixture(scope="module")
def falling() -> Trace:
    """The rate falls to nearly nothing for a second."""
    schedule = ((1.0, 0.01), (2.0, 12.0))
    return simulate(Scenario(duration_s=4, rate_schedule=schedule, flows=(Flow("bbr", rtt_schedule=((3.0, 20.0),)),)))


def test_a_queue_is_not_drawn_beyond_what_packets_waited(falling: Trace) -> None:
    queue = visible(over_time({"": falling}, COLUMNS))[-1]
    longest_ms = np.nanmax(falling.flows[:, :, FLOW_COLUMNS.index("rtt_max_ms")])
    assert queue.dataLim.y1 > 5 * longest_ms
    assert longest_ms < queue.get_ylim()[1] < 1.2 * longest_ms
    assert f"{queue.dataLim.y1:.0f} ms" in queue.get_title(loc="right")


def test_other_queues_are_drawn_whole(falling: Trace) -> None:
    grows = Scenario(rate_mbps=1, buffer_bdp=40, duration_s=1, flows=(Flow("cubic"),))
    for steady in (Scenario(duration_s=2), grows):  # its last packets have not come back yet
        queue = visible(over_time({"": simulate(steady)}, COLUMNS))[-1]
        assert queue.dataLim.y1 < queue.get_ylim()[1]
        assert queue.get_title(loc="right") == ""
    # Nothing came back: no RTT limits the axis.
    silent = Trace(**{**vars(falling), "flows": np.full_like(falling.flows, np.nan)})
    queue = visible(over_time({"": silent}, ("link_queue_mean_ms",)))[-1]
    assert queue.dataLim.y1 < queue.get_ylim()[1]


def test_grey_lines_are_the_base_rtts_and_the_rates_of_the_links(falling: Trace) -> None:
    _, rtt, _ = visible(over_time({"": falling}, COLUMNS))
    assert has_line(rtt, [50.0, 20.0, 20.0])
    two = simulate(Scenario(duration_s=1, second_rate_mbps=3, flows=(Flow("cubic", rtt_ms=30),)))
    throughput, rtt, _ = visible(over_time({"": two}, COLUMNS))
    assert has_line(throughput, [3.0, 3.0])
    assert has_line(rtt, [30.0, 30.0])


def test_a_long_title_leaves_the_panels_their_height(falling: Trace) -> None:
    def height(title: str) -> float:
        return float(over_time({"": falling}, title=title).axes[0].get_position().height) * figure_height(title)

    def figure_height(title: str) -> float:
        return float(over_time({"": falling}, title=title).get_size_inches()[1])

    assert height("a long title " * 24) > 0.9 * height("short")


def test_a_single_flow_of_an_algorithm_has_its_colour_among_many_flows() -> None:
    names = ["bbr", "bbr2", "cubic", "vegas", *["newreno"] * 2]
    trace = simulate(Scenario(duration_s=1, flows=tuple(map(Flow, names))))
    _, *of_flows = over_time({"": trace}).axes[0].get_lines()
    colours = [to_rgb(line.get_color()) for line in of_flows]
    assert colours[:4] == [to_rgb(mark_of(name).colour) for name in names[:4]]
    assert len({*colours}) == 6

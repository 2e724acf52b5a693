"""What environments render: a step as text, an episode as a picture."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from bbrgym.checks import check_name
from bbrgym.envs.info import Info
from bbrgym.envs.style import COLOURS, LINES, STYLE, fit_y
from bbrgym.extras import require


def check_render_mode(render_mode: str | None, known: Collection[str]) -> None:
    """Check that `render_mode` is None, or known and installed; raise ValueError or ModuleNotFoundError if not."""
    if render_mode is not None:
        check_name("render_mode", render_mode, ["None", *known])
    if render_mode == "rgb_array":
        require("render_mode='rgb_array'", "matplotlib")


def link_text(info: Info) -> str:
    """Return a step's time and link as text."""
    return f"{info['time_s']:7.2f} s  queue {info['link_queue_mean_ms']:6.1f} ms  link {info['link_utilisation']:4.0%}"


def flow_text(info: Info) -> str:
    """Return a step of an agent's flow as text."""
    parts = [
        f"{info['throughput_mbps']:8.2f} Mbit/s",
        f"RTT {info['rtt_mean_ms']:6.1f} ms" if info["rtt_mean_ms"] else "RTT      - ms",
        f"lost {info['lost_packets']:4.0f}",
    ]
    if info["cwnd_gain"]:
        parts.append(f"gains {info['cwnd_gain']:.2f} {info['pacing_gain']:.2f}")
    return "  ".join(parts)


def agent_text(info: Info) -> str:
    """Return a step of a single agent as one line of text."""
    return f"{link_text(info)}  {flow_text(info)}"


def draw_agent(infos: Sequence[Info], duration_s: float) -> npt.NDArray[np.uint8]:
    """Draw the episode so far of a single agent, as `draw_episode` does."""
    return draw_episode(["the agent's flow"], [[info] for info in infos], duration_s)


def draw_episode(names: Sequence[str], infos: Sequence[Sequence[Info]], duration_s: float) -> npt.NDArray[np.uint8]:
    """Draw the throughput of each agent's flow, and the queue, of an episode so far, as the pages of ids do.

    Returns:
        A picture of shape (400, 600, 3).
    """
    # The object interface: pyplot would keep the figure in a global list, and could open a window.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    steps = infos[1:]  # the reset has measured nothing
    time_s = [step[0]["time_s"] for step in steps]
    with rc_context(STYLE):
        figure = Figure(figsize=(6, 4), dpi=100, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.55, 1))
        above.plot(time_s, [step[0]["link_rate_mbps"] for step in steps], color="#999999", linewidth=0.8)
        for row, name in enumerate(names):
            own = [step[row] for step in steps]
            rates = [info["throughput_mbps"] if info["is_active"] else np.nan for info in own]
            colour, line = COLOURS[row % len(COLOURS)], LINES[row % len(LINES)]
            above.plot(time_s, rates, color=colour, linestyle=line, label=name)
        queue_ms = [step[0]["link_queue_mean_ms"] for step in steps]
        below.fill_between(time_s, queue_ms, color="#d0d0d0", linewidth=0)
        below.plot(time_s, queue_ms, color="#555555", linewidth=0.9)
        above.set(ylabel="throughput (Mbit/s)")
        below.set(xlabel="time (s)", ylabel="queueing\ndelay (ms)", xlim=(0, duration_s))
        for axes in (above, below):
            fit_y(axes, least=1.0)
        above.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()

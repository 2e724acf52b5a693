"""Find the reward's optimum: `python -m studies.reward [--write docs/results/reward.md]`.

Two flows follow the scripted rule `backlog`, over a grid of both backlogs. Values are means over the second half of a
run and over the seeds, in the native engine.
"""

from __future__ import annotations

import sys
from contextlib import closing
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from bbrgym import Flow, Scenario
from bbrgym.agents.policy import scripted_agent
from bbrgym.agents.scripted import BacklogRule
from bbrgym.benchmark.style import panels, styled
from bbrgym.envs.engine import make_engine
from bbrgym.envs.episode import policy_of
from bbrgym.envs.reward import DEFAULT_TERMS, Reward
from bbrgym.envs.trace import simulate
from bbrgym.interruption import run_interruptible
from studies import page

MARK = "studies/reward.py"
BACKLOGS = (1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0)
SEEDS = (1, 2, 3)
DURATION_S = 40.0
PATHS = {
    f"{rate_mbps} Mbit/s": Scenario(
        rate_mbps=rate_mbps, buffer_bdp=5, duration_s=DURATION_S, flows=(Flow("agent", 20), Flow("agent", 80))
    )
    for rate_mbps in (10, 40, 100)
}


class Point(NamedTuple):
    """The result of a pair of backlogs, of the flow of 20 ms and that of 80 ms."""

    backlogs: tuple[float, float]
    """In packets."""
    rewards: list[float]
    """Mean reward per decision of each flow."""
    shares: list[float]
    """Of each flow in the sum of both throughputs."""
    utilisation: float
    queue_ms: float

    @property
    def reward(self) -> float:
        """Mean reward of both flows."""
        return sum(self.rewards) / 2


def measure(scenario: Scenario, backlogs: tuple[float, float], reward: Reward) -> Point:
    """Simulate a pair of backlogs with every seed."""
    agent = scripted_agent("backlog")
    rules = [BacklogRule(agent.spec.observation, agent.spec.action, backlog) for backlog in backlogs]

    def predict(observations: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return np.concatenate([rule.forward(row[np.newaxis]) for rule, row in zip(rules, observations, strict=True)])

    values = []
    with closing(make_engine("native")) as engine:
        for seed in SEEDS:
            policy = policy_of(predict, agent.spec.observation, agent.spec.action, scenario)
            trace = simulate(scenario, engine, seed, agent.spec.interval_ms(scenario), policy)
            half = trace.time_s > DURATION_S / 2
            rewards = reward.over_steps(scenario, (0, 1), trace.flows[half], trace.link[half]).mean(axis=0)
            summary = trace.summary(after_s=DURATION_S / 2)
            throughputs = [flow.throughput_mbps for flow in summary.flows]
            shares = [throughput / sum(throughputs) for throughput in throughputs]
            values.append([*rewards, *shares, summary.link.utilisation, summary.link.queue_mean_ms])
    first, second, first_share, second_share, utilisation, queue_ms = np.mean(values, axis=0).tolist()
    return Point(backlogs, [first, second], [first_share, second_share], utilisation, queue_ms)


@styled
def draw(grids: dict[str, list[list[Point]]]) -> Figure:
    """Draw the mean reward over both backlogs, a panel per path, with the optimum marked."""
    figure, panels_of = panels(len(grids), len(grids), 2.9, sharey=True)
    labels = [f"{backlog:g}" for backlog in BACKLOGS]
    for axes, (name, grid) in zip(panels_of, grids.items(), strict=True):
        rewards = np.array([[point.reward for point in row] for row in grid])
        image = axes.imshow(rewards, origin="lower", cmap="viridis", vmin=-0.5, vmax=0.0)
        row, column = np.unravel_index(np.argmax(rewards), rewards.shape)
        axes.plot(column, row, "*", color="white", markersize=12, markeredgecolor="black")
        axes.set(title=name, xlabel="of the 80 ms flow")
        axes.set_xticks(range(len(labels)), labels, rotation=90)
        axes.set_yticks(range(len(labels)), labels)
        axes.grid(visible=False)
    panels_of[0].set_ylabel("backlog of the\n20 ms flow (packets)")
    figure.colorbar(image, ax=panels_of, label="mean reward per decision", orientation="horizontal", shrink=0.6)
    return figure


def report(grids: dict[str, list[list[Point]]], reward: Reward) -> str:
    """Return the tables."""
    terms = " + ".join(f"{weight:g} {name}" for name, weight in reward.terms.items() if weight)
    best = {name: max((p for row in grid for p in row), key=lambda point: point.reward) for name, grid in grids.items()}
    pairs = [
        [
            name,
            f"{point.backlogs[0]:g}, {point.backlogs[1]:g}",
            f"{point.reward:.3f}",
            f"{point.shares[0]:.0%}, {point.shares[1]:.0%}",
            f"{point.utilisation:.1%}",
            f"{point.queue_ms:.1f}",
        ]
        for name, point in best.items()
    ]
    own = [
        [name, f"{other:g}", *(f"{row[BACKLOGS.index(other)].rewards[0]:.3f}" for row in grids[name])]
        for name, other in ((name, point.backlogs[1]) for name, point in best.items())
    ]
    headings = ["path", "backlogs (20 ms, 80 ms)", "reward", "shares", "utilisation", "queue, ms"]
    own_headings = ["path", "backlog of the other", *(f"{backlog:g}" for backlog in BACKLOGS)]
    blocks = [
        f"Reward: {terms}; {len(SEEDS)} seeds, steps of 100 ms.",
        "### The best pair of backlogs",
        page.table(headings, pairs, range(1, 6)),
        "### If only the 20 ms flow leaves the best pair",
        "Its own reward, by its own backlog:",
        page.table(own_headings, own, range(1, len(own_headings))),
    ]
    return "\n\n".join(blocks)


def main(arguments: list[str]) -> int:
    """Measure and print; with --write, write the page."""
    parser = page.parser(__doc__, MARK)
    options = parser.parse_args(arguments)
    reward = Reward(DEFAULT_TERMS)
    grids = {
        name: [[measure(scenario, (first, second), reward) for second in BACKLOGS] for first in BACKLOGS]
        for name, scenario in PATHS.items()
    }
    text = report(grids, reward)
    print(text)
    if options.write is not None:
        page.write_block(options.write, MARK, text)
        page.write_figure(draw(grids), options.write, "backlogs")
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("reward", lambda: main(sys.argv[1:])))

"""Find the reward's optimum: `python -m studies.reward [--write docs/results/reward.md]`.

Two flows follow the scripted rule `backlog`, over a grid of both backlogs. Values are means over the second half of a
run and over the seeds, in the native engine.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from bbrgym import Flow, Scenario
from bbrgym.agents.policy import scripted_agent
from bbrgym.agents.scripted import BacklogRule
from bbrgym.envs.engine import make_engine
from bbrgym.envs.episode import policy_of
from bbrgym.envs.reward import DEFAULT_TERMS, Reward
from bbrgym.envs.trace import simulate
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


@dataclass(frozen=True)
class Point:
    """The result of a pair of backlogs.

    Attributes:
        backlogs: of the flow of 20 ms and of that of 80 ms, in packets.
        rewards: mean reward per decision of each flow.
        shares: of each flow in the sum of both throughputs.
        utilisation: of the link.
        queue_ms: mean queueing delay.
    """

    backlogs: tuple[float, float]
    rewards: tuple[float, float]
    shares: tuple[float, float]
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

    points: list[Point] = []
    engine = make_engine("native")
    try:
        for seed in SEEDS:
            policy = policy_of(predict, agent.spec.observation, agent.spec.action, scenario)
            trace = simulate(scenario, engine, seed, agent.spec.interval_ms(scenario), policy)
            half = trace.time_s > DURATION_S / 2
            rewards = reward.over_steps(scenario, (0, 1), trace.flows[half], trace.link[half])
            summary = trace.summary(after_s=DURATION_S / 2)
            throughputs = [flow.throughput_mbps for flow in summary.flows]
            points.append(
                Point(
                    backlogs,
                    _pair(float(np.mean(steps)) for steps in rewards.T.tolist()),
                    _pair(throughput / sum(throughputs) for throughput in throughputs),
                    summary.link.utilisation,
                    summary.link.queue_mean_ms,
                )
            )
    finally:
        engine.close()

    def mean(name: str) -> Any:
        return np.mean([getattr(point, name) for point in points], axis=0)

    return Point(
        backlogs,
        _pair(mean("rewards").tolist()),
        _pair(mean("shares").tolist()),
        float(mean("utilisation")),
        float(mean("queue_ms")),
    )


def _pair(values: Any) -> tuple[float, float]:
    first, second = values
    return first, second


def draw(grids: dict[str, list[list[Point]]]) -> Figure:
    """Draw the mean reward over both backlogs, a panel per path, with the optimum marked."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    panels = figure.subplots(1, len(grids))
    labels = [f"{backlog:g}" for backlog in BACKLOGS]
    for axes, (name, grid) in zip(panels, grids.items(), strict=True):
        rewards = np.array([[point.reward for point in row] for row in grid])
        image = axes.imshow(rewards, origin="lower", cmap="viridis", vmin=max(rewards.min(), -0.5), vmax=0.0)
        row, column = np.unravel_index(np.argmax(rewards), rewards.shape)
        axes.plot(column, row, "*", color="white", markersize=12, markeredgecolor="black")
        axes.set(title=name, xlabel="backlog of the 80 ms flow", xticks=range(len(labels)), yticks=range(len(labels)))
        axes.set_xticklabels(labels, fontsize=7)
        axes.set_yticklabels(labels, fontsize=7)
    panels[0].set_ylabel("backlog of the 20 ms flow, packets")
    figure.colorbar(image, ax=panels, label="mean reward per decision")
    return figure


def report(grids: dict[str, list[list[Point]]], reward: Reward) -> str:
    """Return the tables."""
    terms = " + ".join(f"{weight:g} {name}" for name, weight in reward.terms.items() if weight)
    lines = [f"Reward: {terms}; {len(SEEDS)} seeds, steps of 100 ms.", "", "### The best pair of backlogs", ""]
    rows = []
    for name, grid in grids.items():
        best = max((point for row in grid for point in row), key=lambda point: point.reward)
        rows.append(
            [
                name,
                f"{best.backlogs[0]:g}, {best.backlogs[1]:g}",
                f"{best.reward:.3f}",
                f"{best.shares[0]:.0%}, {best.shares[1]:.0%}",
                f"{best.utilisation:.1%}",
                f"{best.queue_ms:.1f}",
            ]
        )
    headings = ["path", "backlogs (20 ms, 80 ms)", "reward", "shares", "utilisation", "queue, ms"]
    lines += [page.table(headings, rows, range(1, 6)), "", "### If only the 20 ms flow leaves the best pair", ""]
    rows = []
    for name, grid in grids.items():
        best = max((point for row in grid for point in row), key=lambda point: point.reward)
        column = BACKLOGS.index(best.backlogs[1])
        own = [row[column] for row in grid]
        rows.append([name, f"{best.backlogs[1]:g}", *(f"{point.rewards[0]:.3f}" for point in own)])
    headings = ["path", "backlog of the other", *(f"{backlog:g}" for backlog in BACKLOGS)]
    lines += ["Its own reward, by its own backlog:", "", page.table(headings, rows, range(1, len(headings)))]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Measure and print; with --write, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=page.marked(MARK), metavar="FILE", help="page to write the tables into")
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
    sys.exit(main(sys.argv[1:]))

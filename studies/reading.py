"""Read the reference policy: copies that a person can read, and what it does when something happens.

`python -m studies.reading [--write docs/results/learned.md]`. In scenarios of its training distribution the policy
drives all agent flows. Its decisions in ProbeBW are copied by least squares, on few features (each the one that lowers
the error most) or on all, and by a regression tree (CART). Every copy then drives the flows itself, in the scenarios
that judge the policy in `studies.learned`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor, export_text

from bbrgym.agents.policy import Agent, load_agent
from bbrgym.baselines.policy_file import REFERENCE
from bbrgym.benchmark.plots import over_time
from bbrgym.envs.episode import policy_of
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.sharing import Sharing
from bbrgym.envs.trace import simulate
from bbrgym.interruption import run_interruptible
from bbrgym.processes import ProcessExecutor
from studies import page
from studies.learned import ACTIONS, CHOOSES, COUNT, JUDGES, WARMUP, draw, weights_table

MARK: Final = "studies/reading.py"
READ: Final = 48
"""Scenarios whose decisions are copied."""
SIZES: Final = (2, 3, 4, 6, 8)
"""Numbers of features of the linear copies, besides the one with all."""
LEAVES: Final = 16
"""Of the tree, which has about as many lines."""
TREE: Final = f"tree, {LEAVES} leaves"

Values = npt.NDArray[np.float32]
Predict = Callable[[Values], Values]


@dataclass(frozen=True)
class Copy:
    """A copy of the policy.

    Attributes:
        model: a linear regression or a tree, from some features to both actions.
        inputs: the positions of these features.
    """

    model: LinearRegression | DecisionTreeRegressor
    inputs: Sequence[int]

    def predict(self, seen: Values) -> Values:
        """Return the actions, shape (N, 2), of observations, shape (N, features)."""
        actions = np.asarray(self.model.predict(seen[:, list(self.inputs)]), dtype=np.float32)
        return np.clip(actions, -1.0, 1.0)

    def explained(self, seen: Values, actions: Values) -> float:
        """Return the part of the actions' variance that it explains."""
        missed = (self.predict(seen) - actions) ** 2
        return 1.0 - float(missed.sum() / ((actions - actions.mean(axis=0)) ** 2).sum())


def decisions(agent: Agent, scenarios: Sequence[Scenario]) -> tuple[Values, Values]:
    """Return what the policy observes in ProbeBW, shape (N, features), and what it does, (N, 2)."""
    seen: list[Values] = []
    done: list[Values] = []

    def predict(observations: Values) -> Values:
        actions = agent.predict(observations)
        seen.append(observations.copy())
        done.append(actions)
        return actions

    for seed, scenario in enumerate(scenarios, start=1):
        simulate(scenario, "native", seed, agent.spec.interval_ms(scenario), _policy(agent, predict, scenario))
    observed, actions = np.concatenate(seen), np.concatenate(done)
    is_cruising = observed[:, inputs(agent).index("is_probe_bw")] > 0
    return observed[is_cruising], actions[is_cruising]


def copies(seen: Values, actions: Values) -> dict[str, Copy]:
    """Return the copies by their names."""

    def linear(inputs: Sequence[int]) -> Copy:
        return Copy(LinearRegression().fit(seen[:, list(inputs)], actions), inputs)

    everything = range(seen.shape[1])
    varying = np.flatnonzero(np.ptp(seen, axis=0)).tolist()  # features by preference are 0 at the default one
    found: dict[str, Copy] = {}
    chosen: list[int] = []
    while len(chosen) < max(SIZES):
        tried = [linear([*chosen, index]) for index in varying if index not in chosen]
        best = max(tried, key=lambda copy: copy.explained(seen, actions))
        chosen = list(best.inputs)
        if len(chosen) in SIZES:
            found[f"linear, {len(chosen)} features"] = best
    found[f"linear, all {len(varying)} features"] = linear(varying)
    tree = DecisionTreeRegressor(max_leaf_nodes=LEAVES, min_samples_leaf=20, random_state=1)
    found[TREE] = Copy(tree.fit(seen, actions), everything)
    return found


def fair_power(copy: Copy | None, scenario: Scenario, seed: int) -> float:
    """Return the fair power of a scenario whose agent flows a copy drives; None is the policy itself."""
    agent = load_agent(REFERENCE)
    policy = _policy(agent, (copy or agent).predict, scenario)
    trace = simulate(scenario, "native", seed, agent.spec.interval_ms(scenario), policy)
    return Sharing.of_trace(trace, WARMUP).fair_power


def _policy(agent: Agent, predict: Predict, scenario: Scenario) -> Any:
    return policy_of(predict, agent.spec.observation, agent.spec.action, scenario)


def scores(found: Sequence[Copy | None]) -> npt.NDArray[np.float64]:
    """Return the fair power of each copy in each scenario, shape (copies, scenarios)."""
    scenarios = draw(JUDGES, COUNT)
    cases = [(copy, scenario, seed) for copy in found for seed, scenario in enumerate(scenarios, start=1)]
    with ProcessExecutor() as pool:
        powers = np.fromiter(pool.map(fair_power, *zip(*cases, strict=True)), np.float64)
    return powers.reshape(len(found), COUNT)


def tables(agent: Agent) -> list[str]:
    """Return the copies' scores, the smallest good one's weights, and the tree."""
    seen, actions = decisions(agent, draw(CHOOSES, READ))
    found = copies(seen, actions)
    powers = scores([None, *found.values()])
    shares = ["", *(f"{copy.explained(seen, actions):.2f}" for copy in found.values())]
    rows = [
        [name, share, f"{power.mean():.3f}"]
        for name, share, power in zip(["the policy", *found], shares, powers, strict=True)
    ]
    mean = dict(zip(found, powers[1:].mean(axis=1), strict=True))
    best = max((name for name, copy in found.items() if len(copy.inputs) in SIZES), key=mean.__getitem__)
    linear, names = found[best], inputs(agent)
    return [
        f"Copies of its {len(seen)} decisions in ProbeBW in {READ} scenarios, and what they reach when they drive.",
        page.table(["", "explained variance of the actions", "fair power"], rows, (1, 2)),
        f"The weights of “{best}”, on the features as they are:",
        weights_table([names[index] for index in linear.inputs], linear.model.coef_, linear.model.intercept_),
        f"The {TREE}; a value has the {ACTIONS[0]} and the {ACTIONS[1]}:",
        f"```\n{export_text(found[TREE].model, feature_names=names, max_depth=LEAVES, decimals=2).rstrip()}\n```",
    ]


def inputs(agent: Agent) -> list[str]:
    """Return the names of the policy's inputs."""
    features, history = agent.spec.observation.features, agent.spec.observation.history
    ago = [f", {steps} steps before" for steps in range(history - 1, 0, -1)]
    return [name + suffix for suffix in [*ago, ""] for name in features]


def events() -> dict[str, Scenario]:
    """Return a scenario for each thing that may happen to a flow, by its name."""
    plain: dict[str, Any] = {"rate_mbps": 20.0, "buffer_bdp": 4.0, "duration_s": 40.0}

    def flow(**fields: Any) -> Flow:
        return Flow("policy", **{"rtt_ms": 40.0, "jitter_ms": 0.5, **fields})

    return {
        "a flow joins and leaves": Scenario(**plain, flows=(flow(), flow(start_s=10.0, stop_s=25.0))),
        "the path becomes longer": Scenario(**plain, flows=(flow(rtt_schedule=((15.0, 80.0),)),)),
        "jitter": Scenario(**plain, flows=(flow(jitter_ms=20.0),)),
        "the link becomes slower": Scenario(**plain, rate_schedule=((15.0, 5.0),), flows=(flow(),)),
    }


def behaviour() -> Figure:
    """Draw throughput, RTT and cwnd_gain over time in each of `events`."""
    traces = {name: simulate(scenario, "native", 1, 100.0) for name, scenario in events().items()}
    return over_time(traces, ("throughput_mbps", "rtt_mean_ms", "cwnd_gain"))


def main() -> int:
    """Copy and score; with --write, write the tables and the figure into the page."""
    options = page.parser(__doc__, MARK).parse_args()
    blocks = tables(load_agent(REFERENCE))
    if options.write is not None:
        blocks.append("What it does on a link of 20 Mbit/s with RTTs of 40 ms.")
        blocks.append(f"![What it does]({page.write_figure(behaviour(), options.write, 'behaviour')})")
    page.publish("\n\n".join(blocks), MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("reading", main))

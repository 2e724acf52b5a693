"""Read the shipped policy: copies that a person can read, and what it does when something happens.

In scenarios of its training distribution the policy drives all agent flows. Its decisions in ProbeBW are copied by
least squares, on few features (each the one that lowers the error most) or on all, and by a regression tree (CART).
`studies.learned` lets every copy drive the flows itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor, export_text

from bbrgym.agents.policy import Agent
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.plots import over_time
from bbrgym.envs.episode import policy_of
from bbrgym.envs.observation import FEATURES
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace import Policy, simulate
from studies import page

SIZES: Final = (2, 3, 4, 6, 8)
"""Numbers of features of the linear copies, besides the one with all."""
LEAVES: Final = 16
"""Of the tree, which has about as many lines."""
LINEAR: Final = {size: f"linear, {size} features" for size in SIZES}
ALL: Final = "linear, all features"
TREE: Final = f"tree, {LEAVES} leaves"
COPIES: Final = (*LINEAR.values(), ALL, TREE)
"""Names of the copies."""
ACTIONS: Final = ("action of cwnd_gain", "action of pacing_gain")

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
        simulate(
            scenario,
            "native",
            seed=seed,
            step_ms=agent.spec.interval_ms(scenario),
            policy=driven(agent, predict, scenario),
        )
    observed, actions = np.concatenate(seen), np.concatenate(done)
    is_cruising = observed[:, inputs(agent).index("is_probe_bw")] > 0
    return observed[is_cruising], actions[is_cruising]


def driven(agent: Agent, predict: Predict, scenario: Scenario) -> Policy:
    """Return the driver of a run's agent flows that observes and acts as the agent, but decides by `predict`."""
    return policy_of(predict, agent.spec.observation, agent.spec.action, scenario)


def copies(seen: Values, actions: Values) -> dict[str, Copy]:
    """Return `COPIES` by their names."""

    def linear(inputs: Sequence[int]) -> Copy:
        return Copy(LinearRegression().fit(seen[:, list(inputs)], actions), inputs)

    varying = np.flatnonzero(np.ptp(seen, axis=0)).tolist()  # features by preference are 0 at the default one
    found: dict[str, Copy] = {}
    chosen: list[int] = []
    while len(chosen) < max(SIZES):
        tried = [linear([*chosen, index]) for index in varying if index not in chosen]
        best = max(tried, key=lambda copy: copy.explained(seen, actions))
        chosen = list(best.inputs)
        if len(chosen) in SIZES:
            found[LINEAR[len(chosen)]] = best
    found[ALL] = linear(varying)
    tree = DecisionTreeRegressor(max_leaf_nodes=LEAVES, min_samples_leaf=20, random_state=1)
    found[TREE] = Copy(tree.fit(seen, actions), range(seen.shape[1]))
    return found


def described(found: dict[str, Copy], seen: Values, actions: Values, names: Sequence[str]) -> Rows:
    """Return a row per copy: what it explains of so many decisions, and what a person reads of it."""
    rows = []
    for name, copy in found.items():
        row: dict[str, Any] = {
            "copy": name,
            "decisions": len(seen),
            "explained": copy.explained(seen, actions),
            "inputs": [names[index] for index in copy.inputs],
        }
        if isinstance(copy.model, LinearRegression):
            row |= {"weights": copy.model.coef_.tolist(), "bias": copy.model.intercept_.tolist()}
        else:
            row["tree"] = export_text(copy.model, feature_names=list(names), max_depth=LEAVES, decimals=2).rstrip()
        rows.append(row)
    return rows


def weights_table(row: dict[str, Any]) -> str:
    """Return the weights of a linear copy, from its row of `described`."""
    meanings = [page.cell(FEATURES[name.partition(",")[0]].meaning) for name in row["inputs"]]
    rows = [
        [f"`{name}`", *(f"{value:+.3f}" for value in column), meaning]
        for name, column, meaning in zip(row["inputs"], np.array(row["weights"]).T, meanings, strict=True)
    ]
    rows.append(["1", *(f"{value:+.3f}" for value in row["bias"]), "the constant"])
    return page.table(["input", *ACTIONS, "meaning"], rows, (1, 2))


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

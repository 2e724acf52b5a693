"""Read the shipped policy: copies that a person can read, and what it does when something happens.

In scenarios of its training distribution the policy drives all agent flows. Its decisions in ProbeBW are copied by
least squares, on few features (each the one that lowers the error most) or on all, and by a regression tree (CART).
`studies.learned` lets every copy drive the flows itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor, export_text

from bbrgym.agents.policy import Agent
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.plots import over_time
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.episode import policy_of
from bbrgym.envs.observation import FEATURES
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace import Policy, Trace, simulate
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
        agent.reset()
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


@dataclass(frozen=True)
class Event:
    """Something that may happen to a flow of the shipped policy.

    Attributes:
        scenario: what is simulated.
        spans_s: from when to when the page says what the flows have, in s.
    """

    scenario: Scenario
    spans_s: Sequence[tuple[float, float]]


def events() -> dict[str, Event]:
    """Return what may happen to a flow, by its name."""
    plain: dict[str, Any] = {"rate_mbps": 20.0, "buffer_bdp": 4.0, "duration_s": 40.0}

    def flow(**fields: Any) -> Flow:
        return Flow("policy", **{"rtt_ms": 40.0, "jitter_ms": 0.5, **fields})

    pair = (Flow("policy", rtt_ms=10.0), Flow("policy", rtt_ms=50.0))
    comes = flow(start_s=10.0, stop_s=25.0)
    before_and_after = ((5.0, 15.0), (15.0, 25.0), (30.0, 40.0))
    return {
        "the duel: RTTs of 10 and 50 ms": Event(Scenario(**{**plain, "buffer_bdp": 5.0}, flows=pair), [(10.0, 40.0)]),
        "a flow joins and leaves": Event(
            Scenario(**plain, flows=(flow(), comes)), [(5.0, 10.0), (15.0, 25.0), (30.0, 40.0)]
        ),
        "the path becomes longer": Event(
            Scenario(**plain, flows=(flow(rtt_schedule=((15.0, 80.0),)),)), before_and_after
        ),
        "jitter": Event(Scenario(**plain, flows=(flow(jitter_ms=20.0),)), [(10.0, 40.0)]),
        "the link becomes slower": Event(
            Scenario(**plain, rate_schedule=((15.0, 5.0),), flows=(flow(),)), before_and_after
        ),
    }


def happened() -> Rows:
    """Return what the flows have in each span of each of `events`: means, and the median of the packets."""
    return [
        {"event": name, "from_s": from_s, "to_s": to_s, **_within(trace, from_s, to_s)}
        for name, trace in _traces().items()
        for from_s, to_s in events()[name].spans_s
    ]


def _traces() -> dict[str, Trace]:
    return {name: simulate(event.scenario, "native", 1, 100.0) for name, event in events().items()}


def _within(trace: Trace, from_s: float, to_s: float) -> dict[str, Any]:
    """Return what the flows of a run have between two times."""
    steps = int(np.searchsorted(trace.time_s, to_s + 1e-9))
    until = replace(trace, time_s=trace.time_s[:steps], flows=trace.flows[:steps], link=trace.link[:steps])
    summary = until.summary(after_s=from_s)
    gains, bdp_packets = (until.flows[..., FLOW_COLUMNS.index(name)] for name in ("cwnd_gain", "bdp_packets"))
    packets = ((gains - 1.0) * bdp_packets)[until.time_s > from_s + 1e-9]
    active = [index for index, flow in enumerate(summary.flows) if flow.active_s > 0]
    return {
        "throughputs_mbps": [summary.flows[index].throughput_mbps for index in active],
        "utilisation": summary.link.utilisation,
        "queue_ms": summary.link.queue_mean_ms,
        "packets": [float(np.nanmedian(packets[:, index])) for index in active],
    }


def happened_table(rows: Rows) -> str:
    """Return the table of `happened`."""
    lines = [
        [
            row["event"],
            f"{row['from_s']:g} to {row['to_s']:g}",
            " and ".join(f"{rate:.1f}" for rate in row["throughputs_mbps"]),
            f"{row['utilisation']:.0%}",
            f"{row['queue_ms']:.1f}",
            " and ".join(f"{packets:.1f}" for packets in row["packets"]),
        ]
        for row in rows
    ]
    headings = ["", "time, s", "throughput, Mbit/s", "utilisation", "queue, ms", "packets above one BDP, median"]
    return page.table(headings, lines, range(1, len(headings)))


def behaviour() -> Figure:
    """Draw throughput, RTT and cwnd_gain over time in each of `events`."""
    return over_time(_traces(), ("throughput_mbps", "rtt_mean_ms", "cwnd_gain"))

"""Probe what the memory of a policy knows of its path (Alain & Bengio 2016, arXiv:1610.01644).

In scenarios of `families` a policy drives all agent flows. What it observes before each decision, what it remembers
then, and both are mapped linearly to what is true of the path, which no sender sees (`QUANTITIES`): by ridge
regression in one draw of scenarios. R² is that of another draw. In `moments`, where a path changes at a known time, the
same maps say what the memory holds true from step to step.

The study is of the shipped policy, or of another one: `python -m studies memory --agent FOLDER`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure
from sklearn.linear_model import Ridge

from bbrgym.agents.card import describe_network
from bbrgym.agents.policy import Agent, load_agent
from bbrgym.baselines.policy_file import Network
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.statistics import bootstrap_interval, number_text
from bbrgym.benchmark.style import COLOURS, empty_figure, fit_y, name_lines, styled
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.scenario import Flow, Scenario
from studies import page

COUNT: Final = 256
"""Scenarios that fit the probes, and as many others that judge them."""
FITS, JUDGES = 20_270_301, 20_270_302
"""Seeds of the draws; those of trainings are small."""
SETTLED_S: Final = 3.0
"""So long after its start a flow is not probed: nobody can know its path yet."""
RIDGE: Final = 0.01
"""Weight of the squared coefficients, for inputs of standard deviation 1 and a mean squared error."""
WINDOW_S: Final = 1.0
"""What is true of an RTT that changes is its lowest and its spread over so long."""

OBSERVATION, MEMORY, BOTH = "observation", "memory", "both"
EVENT_S: Final = 15.0
"""When something happens in `moments`."""
NEAR_S: Final = 5.0
"""Length of the times before, after and long after an event that the page compares."""
SMOOTH_S: Final = 1.0
"""A probe of a single step is noisy: curves and delays are of its mean over so long."""

Array = npt.NDArray[np.float64]
Values = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Quantity:
    """Something that is true of a path, in the order of magnitude: log2(value + offset).

    Attributes:
        name: what pages call it.
        unit: of the value; empty for a number.
        offset: what is added before the logarithm, for values that can be 0.
    """

    name: str
    unit: str
    offset: float = 0.0

    @property
    def title(self) -> str:
        """The name with its unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def scaled(self, values: npt.ArrayLike) -> Array:
        """Return values on the scale of the probes."""
        scaled: Array = np.log2(np.asarray(values, dtype=np.float64) + self.offset)
        return scaled

    def plain(self, scaled: npt.ArrayLike) -> Array:
        """Return the values of which `scaled` are the logarithms, at least 0."""
        plain: Array = np.maximum(np.exp2(np.asarray(scaled, dtype=np.float64)) - self.offset, 0.0)
        return plain


RATE = Quantity("rate", "Mbit/s")
BASE_RTT = Quantity("base RTT", "ms")
SPREAD = Quantity("RTT spread", "ms", offset=1.0)
FLOWS = Quantity("flows", "")
LOSS = Quantity("random loss", "%", offset=0.1)
AGGREGATION = Quantity("ACK aggregation", "ms", offset=1.0)
QUANTITIES: Final = (RATE, BASE_RTT, SPREAD, FLOWS, LOSS, AGGREGATION)


@dataclass(frozen=True)
class Moment:
    """A run in which the path changes at `EVENT_S`.

    Attributes:
        scenario: what is simulated; the first flow is probed.
        quantity: what changes.
    """

    scenario: Scenario
    quantity: Quantity


def moments() -> dict[str, Moment]:
    """Return what may happen to a path, by its name."""
    plain: dict[str, Any] = {"rate_mbps": 20.0, "buffer_bdp": 4.0, "duration_s": 40.0}

    def flow(**fields: Any) -> Flow:
        return Flow(**{"algorithm": "agent", "rtt_ms": 40.0, "jitter_ms": 0.5, **fields})

    # `jitter_ms` is that of a whole run, so the base RTT itself begins to vary, every ms.
    rtts_ms = np.random.default_rng(1).uniform(40.0, 60.0, 25_000).round(3).tolist()
    jitter = tuple((EVENT_S + 0.001 * step, rtt_ms) for step, rtt_ms in enumerate(rtts_ms))
    rivals = (flow(start_s=EVENT_S),) * 3
    return {
        "the path begins to jitter": Moment(Scenario(**plain, flows=(flow(rtt_schedule=jitter),)), SPREAD),
        "a hand-over: the RTT doubles": Moment(
            Scenario(**plain, flows=(flow(rtt_schedule=((EVENT_S, 80.0),)),)), BASE_RTT
        ),
        "three flows of the policy join": Moment(Scenario(**plain, flows=(flow(), *rivals)), FLOWS),
        "a flow of CUBIC joins": Moment(
            Scenario(**plain, flows=(flow(), flow(algorithm="cubic", start_s=EVENT_S))), FLOWS
        ),
    }


@dataclass(frozen=True)
class Episode:
    """What K agent flows of a run observed before each of T decisions, what they did, and what was true.

    Attributes:
        observations: shape (T, K, length).
        memory: what the policy remembered with this observation (`bounded`), shape (T, K, size).
        truth: `QUANTITIES` on the scale of the probes, at the time of the observation, shape (T, K, quantities).
        packets: above one BDP that it asked for, shape (T, K).
        time_s: shape (T,).
        is_settled: whether a flow takes part, and has for `SETTLED_S`, shape (T, K).
    """

    observations: Values
    memory: Values
    truth: Array
    packets: Array
    time_s: Array
    is_settled: npt.NDArray[np.bool_]


def episodes(agent: Agent, distribution: Distribution | Scenario, seed: int, count: int) -> Iterator[Episode]:
    """Yield runs in which a policy drives all agent flows, as an environment in native has them."""
    spec = dataclasses.replace(agent.spec, scenario=distribution, engine="native", engine_options={})
    with closing(Episodes(spec, 1)) as env:
        for index in range(count):
            env.begin_resets(np.arange(1), [np.random.default_rng([seed, index])])
            env.finish_resets()
            yield _episode(agent, spec, env)


def _episode(agent: Agent, spec: EpisodeSpec, env: Episodes) -> Episode:
    (scenario,) = env.scenarios
    rollout = env.begin_rollout(np.zeros((env.most_steps, spec.agents, 2), np.float32))
    env.run(rollout, agent.compiled)
    arrays, steps = rollout.arrays, int(rollout.arrays.next_steps[0])
    # The observation before a step, and so the memory then, is of the row of the step before.
    observed, before = slice(1, steps), slice(0, steps - 1)
    time_s = arrays.time_s[before, 0]
    flows = [scenario.flows[index] for index in rollout.flow_of[0]]
    bdp_packets = rollout.column(FLOW_COLUMNS.index("bdp_packets"))[before]
    gains, _ = spec.action.all_gains(arrays.actions[observed].reshape(-1, 2), bdp_packets.ravel())
    return Episode(
        observations=arrays.observations[observed],
        memory=bounded(agent.states(arrays.observations[:steps])[1:], agent.stored.network),
        truth=np.stack(
            [_truth(scenario, flow, arrays.flows[before, 0], arrays.link[before, 0], time_s) for flow in flows], 1
        ),
        packets=(gains.reshape(bdp_packets.shape) - 1.0) * bdp_packets,
        time_s=time_s,
        is_settled=rollout.took_part()[before]
        & (time_s[:, np.newaxis] - [flow.start_s for flow in flows] >= SETTLED_S),
    )


def bounded(states: Values, network: Network) -> Values:
    """Return states of a network as its output gates see them: hidden states, and tanh of cell states.

    A cell state has no bound, so a linear map of it means little beyond the values that it was fitted to.
    """
    widths = [of_state.shape[1] for _, of_state, _ in network.lstm]
    is_cell = np.concatenate([[], *([False] * width + [True] * width for width in widths)]).astype(np.bool_)
    return np.where(is_cell, np.tanh(states), states)


def _truth(scenario: Scenario, flow: Flow, flows: Array, link: Array, time_s: Array) -> Array:
    """Return `QUANTITIES` of a flow's path, shape (T, quantities), from the rows of all flows and of the link."""
    lowest, highest = within(flow.rtt_ms, flow.rtt_schedule, time_s, WINDOW_S)
    values: dict[Quantity, npt.ArrayLike] = {
        RATE: link[:, LINK_COLUMNS.index("rate_mbps")],
        BASE_RTT: lowest,
        SPREAD: flow.jitter_ms + highest - lowest,
        FLOWS: np.maximum((flows[..., FLOW_COLUMNS.index("is_active")] > 0.5).sum(axis=1), 1),
        LOSS: 100 * scenario.loss,
        AGGREGATION: flow.ack_aggregation_ms,
    }
    return np.stack(np.broadcast_arrays(*(each.scaled(values[each]) for each in QUANTITIES)), axis=1)


def within(
    first: float, schedule: Sequence[tuple[float, float]], time_s: Array, window_s: float
) -> tuple[Array, Array]:
    """Return the lowest and the highest value of a schedule within the window that ends at each time.

    Args:
        first: the value before the first entry.
        schedule: pairs (time in s, value) with rising times.
        time_s: shape (T,).
        window_s: its length.
    """
    values = np.array([first, *(value for _, value in schedule)])
    changes = [time for time, _ in schedule]
    begins = np.searchsorted(changes, time_s - window_s, side="right")
    ends = np.searchsorted(changes, time_s, side="right") + 1
    windows = [values[begin:end] for begin, end in zip(begins, ends, strict=True)]
    return np.array([each.min() for each in windows]), np.array([each.max() for each in windows])


@dataclass(frozen=True)
class Samples:
    """The settled steps of all flows of some scenarios, S of them.

    Attributes:
        inputs: what the probes see, by its name, shape (S, …).
        truth: shape (S, quantities).
        scenarios: the number of each step's scenario, shape (S,).
    """

    inputs: Mapping[str, Values]
    truth: Array
    scenarios: npt.NDArray[np.intp]

    @classmethod
    def of(cls, runs: Sequence[Episode]) -> Samples:
        """Gather the steps of runs."""
        return cls(
            inputs_of(
                np.concatenate([run.observations[run.is_settled] for run in runs]),
                np.concatenate([run.memory[run.is_settled] for run in runs]),
            ),
            truth=np.concatenate([run.truth[run.is_settled] for run in runs]),
            scenarios=np.repeat(np.arange(len(runs)), [run.is_settled.sum() for run in runs]),
        )

    @property
    def weights(self) -> Array:
        """Weights with which all scenarios count the same, of sum 1, shape (S,)."""
        counts = np.bincount(self.scenarios)
        weights: Array = 1.0 / (np.count_nonzero(counts) * counts[self.scenarios])
        return weights


def inputs_of(observations: Values, memory: Values) -> dict[str, Values]:
    """Return what the probes see, by its name; without a memory it is the observation alone."""
    if not memory.shape[-1]:
        return {OBSERVATION: observations}
    return {OBSERVATION: observations, MEMORY: memory, BOTH: np.concatenate([observations, memory], axis=-1)}


@dataclass(frozen=True)
class Probe:
    """A linear map from what a policy sees or remembers to `QUANTITIES`."""

    mean: Array
    scale: Array
    model: Ridge

    @classmethod
    def fit(cls, inputs: Values, truth: Array, weights: Array) -> Probe:
        """Fit by ridge regression.

        Args:
            inputs: shape (S, …).
            truth: shape (S, quantities).
            weights: of the S steps, of sum 1.
        """
        exact = inputs.astype(np.float64)
        mean = np.average(exact, axis=0, weights=weights)
        deviation = np.sqrt(np.average((exact - mean) ** 2, axis=0, weights=weights))
        scale = 1.0 / np.where(deviation > 1e-6, deviation, 1.0)  # else it is constant but for rounding
        return cls(mean, scale, Ridge(alpha=RIDGE).fit((exact - mean) * scale, truth, sample_weight=weights))

    def predict(self, inputs: Values) -> Array:
        """Return `QUANTITIES` on the scale of the probes, shape (S, quantities)."""
        predicted: Array = self.model.predict((inputs.astype(np.float64) - self.mean) * self.scale)
        return predicted


def explained(probe: Probe, name: str, samples: Samples) -> list[tuple[float, float, float]]:
    """Return R² of a probe with its 95 % interval, for each of `QUANTITIES`.

    All scenarios count the same, and the interval is over scenarios.
    """
    weights = samples.weights
    numbers = np.unique(samples.scenarios)
    missed = (samples.truth - probe.predict(samples.inputs[name])) ** 2

    def of_scenarios(values: Array) -> Array:
        """Return the sum over each scenario's steps."""
        return np.array([np.bincount(samples.scenarios, weights * column)[numbers] for column in values.T])

    errors, firsts, squares = map(of_scenarios, (missed, samples.truth, samples.truth**2))
    found = []
    for error, first, square in zip(errors, firsts, squares, strict=True):

        def r2(drawn: Array, axis: int = 0, error: Array = error, first: Array = first, square: Array = square) -> Any:
            chosen = drawn.astype(np.intp)
            part = drawn.shape[axis] / len(numbers)  # of the weights
            mean = first[chosen].sum(axis=axis) / part
            variance = square[chosen].sum(axis=axis) / part - mean**2
            with np.errstate(divide="ignore", invalid="ignore"):
                return 1.0 - error[chosen].sum(axis=axis) / part / variance

        every = np.arange(len(numbers), dtype=np.float64)
        found.append((float(r2(every)), *bootstrap_interval(every, r2)))
    return found


@dataclass(frozen=True)
class Probed:
    """What the probes explain; or what they say in one of `moments`.

    Attributes:
        agent: the folder of the policy.
        moment: its name; None for what they explain.
    """

    agent: Path
    moment: str | None = None

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return "explained" if self.moment is None else f"moments/{self.moment}"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        scenario = None if self.moment is None else moments()[self.moment].scenario.to_dict()
        settings = [COUNT, FITS, JUDGES, SETTLED_S, RIDGE, WINDOW_S, _distribution().plain, scenario]
        policy = hashlib.sha256(_agent(self.agent).to_bytes()).hexdigest()  # also of how often it decides
        return code_hash("native", also=json.dumps([policy, settings]))


@dataclass(frozen=True)
class Memory:
    """The study of one policy.

    Attributes:
        agent: the folder of a trained policy, or of a training.
    """

    agent: Path

    def jobs(self) -> Sequence[Probed]:
        """Return what is measured."""
        return [Probed(self.agent), *(Probed(self.agent, moment) for moment in moments())]

    @property
    def work(self) -> Callable[[Probed], Rows]:
        """The function that measures one of them."""
        return measured

    def view(self, results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
        """Return what the policy is, what its memory explains, and what it says in each of the moments."""
        rows = results[Probed(self.agent).name]
        timelines = [Timeline(moment, results[Probed(self.agent, moment).name][0]) for moment in moments()]
        return {
            "network": rows[0]["network"],
            "content_hash": rows[0]["content_hash"],
            "has_memory": any(row["inputs"] == MEMORY for row in rows),
            "scenarios": COUNT,
            "settled": f"{SETTLED_S:g}",
            "near": f"{NEAR_S:g}",
            "explained": explained_table(rows),
            "moments": moments_table(timelines),
            "figure": figure("moments", lambda: curves(timelines)),
        }


def of_agent(agent: Path) -> Memory:
    """Return the study of a policy in this folder."""
    return Memory(agent)


def measured(job: Probed) -> Rows:
    """Fit the probes, and judge them in other scenarios or see what they say in a moment."""
    agent, probes = _agent(job.agent), _probes(job.agent)
    if job.moment is None:
        judges = Samples.of(list(episodes(agent, _distribution(), JUDGES, COUNT)))
        return [
            {
                "quantity": quantity.name,
                "inputs": name,
                **dict(zip(("r2", "low", "high"), found, strict=True)),
                "network": describe_network(agent.stored.network),
                "content_hash": agent.stored.content_hash,
            }
            for name, probe in probes.items()
            for quantity, found in zip(QUANTITIES, explained(probe, name, judges), strict=True)
        ]
    moment = moments()[job.moment]
    (run,) = episodes(agent, agent.spec.action.on(moment.scenario), 1, count=1)
    place = QUANTITIES.index(moment.quantity)
    inputs = inputs_of(run.observations[:, 0], run.memory[:, 0])
    series = {name: probe.predict(inputs[name])[:, place] for name, probe in probes.items()}
    series |= {"time_s": run.time_s, "truth": run.truth[:, 0, place], "packets": run.packets[:, 0]}
    return [{name: values.round(3).tolist() for name, values in series.items()}]


@cache
def _agent(path: Path) -> Agent:
    return load_agent(path)


@cache
def _distribution() -> Distribution:
    return Distribution.of("families")


@cache
def _probes(agent: Path) -> dict[str, Probe]:
    """Return a probe for each kind of inputs that the policy has."""
    samples = Samples.of(list(episodes(_agent(agent), _distribution(), FITS, COUNT)))
    return {name: Probe.fit(inputs, samples.truth, samples.weights) for name, inputs in samples.inputs.items()}


def explained_table(rows: Rows) -> str:
    """Return R² of each quantity from each of the inputs, and what the memory adds to the observation."""
    found = {(row["quantity"], row["inputs"]): row for row in rows}
    kinds = list(dict.fromkeys(row["inputs"] for row in rows))
    lines = []
    for quantity in dict.fromkeys(row["quantity"] for row in rows):
        of_kinds = [found[quantity, kind] for kind in kinds]
        line = [quantity, *(f"{row['r2']:.2f} [{row['low']:.2f} {row['high']:.2f}]" for row in of_kinds)]
        if BOTH in kinds:
            line.append(f"{found[quantity, BOTH]['r2'] - found[quantity, OBSERVATION]['r2']:+.2f}")
        lines.append(line)
    headings = ["", *kinds, *(["the memory adds"] if BOTH in kinds else [])]
    return page.table(headings, lines, range(1, len(headings)))


@dataclass(frozen=True)
class Timeline:
    """What was true, what the probes said and what the policy did in a moment.

    Attributes:
        name: of the moment.
        row: of `measured`: series of T values by their names.
    """

    name: str
    row: Mapping[str, Any]

    @property
    def quantity(self) -> Quantity:
        """What changes."""
        return moments()[self.name].quantity

    @property
    def kinds(self) -> list[str]:
        """The inputs whose probes are shown."""
        return [kind for kind in (OBSERVATION, MEMORY) if kind in self.row]

    @property
    def time_s(self) -> Array:
        """Shape (T,)."""
        return np.array(self.row["time_s"])

    def smooth(self, name: str) -> Array:
        """Return the mean of a series over the last `SMOOTH_S`, shape (T,)."""
        steps = max(1, round(SMOOTH_S / float(np.median(np.diff(self.time_s)))))
        mean: Array = pd.Series(self.row[name]).rolling(steps, min_periods=1).mean().to_numpy()
        return mean

    def parts(self) -> list[npt.NDArray[np.bool_]]:
        """Return which times are before the event, right after it, and at the end of the run, `NEAR_S` each."""
        ends_s = (EVENT_S, EVENT_S + NEAR_S, float(self.time_s[-1]))
        return [(self.time_s > end_s - NEAR_S) & (self.time_s <= end_s) for end_s in ends_s]

    def means(self, name: str) -> Array:
        """Return the means of a series in each of the `parts`."""
        values = np.array(self.row[name])
        return np.array([values[part].mean() for part in self.parts()])

    def half_way_s(self, kind: str) -> float:
        """Return how long after the event a probe has come half of the way to the new truth; NaN if it never does.

        The way is on the scale of the probes, from what the probe says before the event.
        """
        old, new = self.means(kind)[0], self.means("truth")[-1]
        is_there = (self.smooth(kind) - old) * np.sign(new - old) >= abs(new - old) / 2
        is_there &= self.time_s > EVENT_S
        return float(self.time_s[is_there.argmax()] - EVENT_S) if is_there.any() else math.nan


def moments_table(timelines: Sequence[Timeline]) -> str:
    """Return what is true, what the probes say and what the policy does before an event, after it and at the end."""
    kinds = timelines[0].kinds
    lines = [
        [
            timeline.name,
            timeline.quantity.title,
            *(_changes(timeline.quantity.plain(timeline.means(name))) for name in ("truth", *kinds)),
            *(number_text(timeline.half_way_s(kind), ".1f") for kind in kinds),
            _changes(timeline.means("packets")),
        ]
        for timeline in timelines
    ]
    delays = [f"half way, {kind}, s" for kind in kinds]
    headings = ["", "what changes", "truth", *kinds, *delays, "packets above one BDP"]
    return page.table(headings, lines, range(2, len(headings)))


def _changes(values: Array) -> str:
    return " → ".join(number_text(value, ".0f" if value >= 10 else ".1f") for value in values)


@styled
def curves(timelines: Sequence[Timeline]) -> Figure:
    """Draw the truth, what the probes say, and the packets above one BDP over time; two moments are side by side."""
    blocks = math.ceil(len(timelines) / 2)
    figure = empty_figure(0.3 + 3.3 * blocks)
    grid = figure.subplots(2 * blocks, 2, squeeze=False, height_ratios=[1.7, 1.2] * blocks)
    lines = {"truth": ("#555555", "-"), OBSERVATION: (COLOURS[1], "--"), MEMORY: (COLOURS[0], "-")}
    for place, timeline in enumerate(timelines):
        block, side = divmod(place, 2)
        probes, action = grid[2 * block : 2 * block + 2, side]
        is_shown = timeline.time_s > EVENT_S - 2 * NEAR_S
        time_s, quantity = timeline.time_s[is_shown], timeline.quantity
        for name in ("truth", *timeline.kinds):
            colour, style = lines[name]
            values = np.array(timeline.row[name]) if name == "truth" else timeline.smooth(name)
            label = name if place == 0 else None
            probes.plot(time_s, quantity.plain(values[is_shown]), style, color=colour, linewidth=1.2, label=label)
        action.plot(time_s, timeline.smooth("packets")[is_shown], color=COLOURS[2], linewidth=1.2)
        probes.set(title=timeline.name, ylabel=quantity.title)
        action.set_ylabel("packets above\none BDP")
        for axes in (probes, action):
            axes.set_xlim(time_s[0], time_s[-1])
            axes.axvline(EVENT_S, color="#999999", linewidth=0.8, zorder=0)
            fit_y(axes, least=1.0)
        probes.tick_params(labelbottom=False)
        if block == blocks - 1:
            action.set_xlabel("time (s)")
    name_lines(figure)
    return figure

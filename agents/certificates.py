"""Certificates of a policy: properties of its decisions, each proved, refuted or undecided (docs/certificates.md).

A property is checked over a box: every value that each feature can have, whatever the others are. Branch and bound
divides the box until the network's bounds decide (`bbrgym.agents.bounds`). What refutes a property is run through the
network in C++, as engines run it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, Final

import numpy as np

from bbrgym import _controllers
from bbrgym._controllers import LEAST_BDP, PACKETS_STEEPNESS, PolicyNetwork
from bbrgym.agents.bounds import Floats, NetworkBounds
from bbrgym.agents.properties import BY_PREFERENCE, LAST, SOUGHT, Comparison, Property, quantity, read_property, scale
from bbrgym.baselines import registry
from bbrgym.baselines.policy_file import StoredPolicy
from bbrgym.checks import check_integer, check_number
from bbrgym.envs.action import Action
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.observation import FEATURES, PREFERENCE, Feature, Observation
from bbrgym.envs.rollouts import roll

PROVED: Final = "proved"
REFUTED: Final = "refuted"
UNDECIDED: Final = "undecided"

BOXES: Final = 20_000
"""Budget for each number that is tried: a second for a network of some hundred weights."""

_BATCH: Final = 128
"""Boxes that are divided at a time, of small networks; of others fewer, so that they need some `_BATCH_VALUES`."""
_BATCH_VALUES: Final = 4e6
_TOLERANCE: Final = 0.01
"""A bound that is sought is good enough if something comes as close to it, as a part of it."""
_MARGIN: Final = 1e-6
"""By how much boxes are wider than what they stand for: features are rounded to single precision."""
_SAME_ACTION: Final = 1e-5
"""An action that is larger by less is the same choice, for features are rounded to single precision."""
_SAME_GAIN: Final = 1e-5
_IMPOSSIBLE: Final = 1e9
"""How far an observation that cannot be is from refuting anything."""
_STARTS: Final = 2000
"""Corners of the box that are tried at first; from the best `_CLIMBERS` the search climbs. With a memory, each costs 31
steps: `_STARTS_WITH_MEMORY`, and one climbs."""
_CLIMBERS: Final = 8
_STARTS_WITH_MEMORY: Final = 100
_PAST: Final = 30
"""Steps before the one that refutes a property of a policy with a memory."""
_BISECTIONS: Final = 8
"""How often the range of a condition whose number is sought is halved."""
_MOST_BDP: Final = 1e12
"""In packets: no path has more."""


class NothingObservedError(ValueError):
    """No observation fulfils all conditions."""


@dataclass(frozen=True)
class Certificate:
    """What became of a property.

    Attributes:
        asked: the property.
        stated: the same, with what was found in place of `?`.
        verdict: `PROVED`, `REFUTED`, or `UNDECIDED` after the budget.
        bound: what is proved of the claim's quantity; None for a claim about the last choice.
        reached: the worst value of the quantity that the policy was seen to choose; None likewise.
        observation: with which it was, or which refutes the claim; shape (length of an observation,).
        before: of a policy with a memory, what it observed in each of the 30 steps before; else empty.
        example: the quantities of `observation` by name, without the neutral ones.
        example_before: those of `before`.
        decision: what the policy decides on `observation`, by quantity.
        is_of_action: whether the bound is the action's own, whatever the network does.
        boxes: how many were bounded.
    """

    asked: Property
    stated: Property
    verdict: str
    bound: float | None
    reached: float | None
    observation: tuple[float, ...]
    before: tuple[float, ...]
    example: Mapping[str, float]
    example_before: Mapping[str, float]
    decision: Mapping[str, float]
    is_of_action: bool
    boxes: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain types."""
        plain = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        return plain | {"asked": str(self.asked), "stated": str(self.stated)}


def default_properties(policy: StoredPolicy) -> list[Property]:
    """Return what an engineer would ask first, in terms of what the policy observes and decides.

    The bounds of its window and of its pacing, what it does while a queue builds, and on an empty path.
    """
    names = policy.spec["observation"]["features"]
    scale_ = policy.spec["action"]["cwnd_scale"]
    window = "excess_packets" if scale_ == "packets" else "cwnd_gain"
    texts = [str(each) for each in bounds_of(policy)]
    if queue := [name for name in _FULL if name in names]:
        rising = ", send_rate_ratio >= 1" if "send_rate_ratio" in names else ""
        name = quantity(FEATURES[queue[0]])
        if _last_feature("cwnd_gain", scale_) in names:
            texts.append(f"{name} >= ?{rising} -> cwnd_gain <= {LAST}")
        texts.append(f"{name} >= {_FULL[queue[0]]}{rising} -> {window} <= ?")
        empty = [f"{quantity(FEATURES[name])} = {value}" for name, value in _EMPTY.items() if name in names]
        texts.append(f"{', '.join(empty)} -> {window} >= ?")
    return [read_property(text) for text in texts]


def bounds_of(policy: StoredPolicy) -> list[Property]:
    """Return the properties that ask for the least and the largest of what a policy decides, whatever it observes."""
    window = "excess_packets" if policy.spec["action"]["cwnd_scale"] == "packets" else "cwnd_gain"
    return [read_property(f"{name} {sign} ?") for name in (window, "pacing_gain") for sign in (">=", "<=")]


_FULL: Final = {"log_backlog": 64, "log_rtt_ratio": 2, "queueing_ratio": 1}
"""A queue, in the quantities of features."""
_EMPTY: Final = {
    "log_backlog": 0,
    "log_least_backlog": 0,
    "queueing_ratio": 0,
    "log_rtt_ratio": 1,
    "log_queueing_delay": 0,
    "loss_rate": 0,
    "log_loss_rate": 0,
}
"""No queue and no loss, likewise."""


Box = tuple[Floats, Floats]
"""Lowest and highest observation, both of shape (length of an observation,)."""


def observed_box(policy: StoredPolicy, episodes: int, seed: int = 1) -> Box:
    """Return the box of what a policy observes in episodes of its training distribution, in the native engine.

    Args:
        policy: the policy; it acts.
        episodes: how many begin; they run until the longest has ended.
        seed: draws them.

    Raises:
        ValueError: its file has no training distribution, or its episodes are not of the native engine.
    """
    check_integer("episodes", episodes, at_least=1)
    spec = EpisodeSpec.from_config(policy.spec)
    rngs = [np.random.default_rng([seed, number]) for number in range(episodes)]
    with closing(Episodes(spec, episodes)) as env:
        if not env.can_roll:
            raise ValueError(f"the box of what is observed needs a training in engine=native, got {spec.engine!r}")
        env.begin_resets(np.arange(episodes), rngs)
        env.finish_resets()
        still = np.zeros((env.most_steps, episodes * spec.agents, 2), np.float32)
        rollout = roll(env, rngs, still, PolicyNetwork(policy.to_bytes()))
    seen = np.vstack([rollout.observations[:-1][rollout.took_part], rollout.terminal_observations]).astype(float)
    return seen.min(axis=0), seen.max(axis=0)


def certify(
    policy: StoredPolicy,
    asked: Property,
    *,
    preference: float | None = None,
    observed: Box | None = None,
    boxes: int = BOXES,
) -> Certificate:
    """Prove or refute a property of a policy.

    Args:
        policy: the policy.
        asked: the property.
        preference: of the flow, in [0, 1]; None for any.
        observed: a box that observations lie in; None for all that features can have.
        boxes: most boxes that are bounded, for each number that is tried.

    Raises:
        NothingObservedError: no observation fulfils the conditions.
        ValueError: a condition on what the policy does not observe, a claim that is not about its actions, or a network
            whose sums can overflow.
    """
    check_integer("boxes", boxes, at_least=1)
    if [one.number for one in (*asked.conditions, asked.claim)].count(None) > 1:
        raise ValueError(f"a property can have one '{SOUGHT}', got '{asked}'")
    problem = _Problem(policy, preference, observed)
    sought = next((place for place, one in enumerate(asked.conditions) if one.number is None), None)
    if sought is None:
        return problem.certificate(asked, asked, problem.solve(asked, boxes))
    return _weakest(problem, asked, sought, boxes)


def _weakest(problem: _Problem, asked: Property, sought: int, boxes: int) -> Certificate:
    """Find, by bisection, the weakest condition under which a claim is proved."""
    condition = asked.conditions[sought]
    feature = problem.features_of(condition.name)[0]
    weak, strong = problem.range_of(feature, [one for one in asked.conditions if one is not condition])
    if condition.sign == "<=":
        weak, strong = strong, weak

    def attempt(value: float) -> Certificate:
        number = value if condition.name == feature.name else scale(feature).back(value)
        conditions = list(asked.conditions)
        conditions[sought] = dataclasses.replace(condition, number=number)
        stated = dataclasses.replace(asked, conditions=tuple(conditions))
        return problem.certificate(asked, stated, problem.solve(stated, boxes))

    best = attempt(strong)
    bounded = best.boxes
    tried = weak
    for _ in range(_BISECTIONS if best.verdict == PROVED else 0):
        found = attempt(tried)
        bounded += found.boxes
        if found.verdict == PROVED:
            best, strong = found, tried
        else:
            weak = tried
        if weak == strong:
            break
        tried = (weak + strong) / 2
    return dataclasses.replace(best, boxes=bounded)


def _last_feature(claimed: str, cwnd_scale: str) -> str:
    """Return the feature that tells what a policy chose last of a quantity."""
    if claimed == "pacing_gain":
        return "log_pacing_gain"
    return "asinh_excess_window" if cwnd_scale == "packets" else "log_cwnd_gain"


@dataclass(frozen=True)
class _Goal:
    """A number to maximise: a quantity or its negative, or how far an action is above the last one, or below.

    Attributes:
        output: which of the network's outputs.
        sign: 1; -1 for the negative.
        most: gives upper bounds of the number per box, of upper bounds of `sign x action`, lowest and highest inputs.
        seen: gives the numbers of actions, shape (n,), and observations, shape (n, inputs).
        limit: the claim holds while the number is at most this; None if it is sought.
        of_inputs: what the number adds to `sign x action` that is linear in the inputs; None for nothing.
        linear: gives upper bounds per box, of those of this sum before actions are clipped.
    """

    output: int
    sign: float
    most: Callable[[Floats, Floats, Floats], Floats]
    seen: Callable[[Floats, Floats], Floats]
    limit: float | None
    of_inputs: Floats | None = None
    linear: Callable[[Floats, Floats, Floats], Floats] | None = None


@dataclass(frozen=True)
class _Outcome:
    """Of a search: the number is at most `most`, and is `reached` at `point`."""

    goal: _Goal
    most: float
    reached: float
    point: Floats
    box: Box
    boxes: int

    @property
    def verdict(self) -> str:
        if self.goal.limit is None or self.most <= self.goal.limit:
            return PROVED
        return REFUTED if self.reached > self.goal.limit else UNDECIDED


class _Problem:
    """A policy, and the box of all that it can observe."""

    def __init__(self, policy: StoredPolicy, preference: float | None, observed: Box | None) -> None:
        check_number("preference", preference, at_least=0, at_most=1, or_none=True)
        observation = Observation(**policy.spec["observation"])
        self._action = Action(**policy.spec["action"])
        self._is_clipped = policy.network.output == "clip"
        self._network = NetworkBounds(policy.network)
        self._compiled = PolicyNetwork(policy.to_bytes())
        self._inputs = policy.network.inputs
        self._names = observation.features
        self._features = [FEATURES[name] for name in self._names]
        ends = zip(*(_values(feature, preference) for feature in self._features), strict=True)
        low, high = (np.tile(np.array(end, np.float32), observation.history).astype(float) for end in ends)
        if observed is not None:
            # What a preference fixes was observed at others.
            is_fixed = [PREFERENCE in name for name in self._names] if preference is not None else [False]
            is_free = ~np.resize(is_fixed, len(low))
            low, high = (
                np.where(is_free, np.clip(end, low, high), old) for end, old in zip(observed, (low, high), strict=True)
            )
        self._low, self._high = low, high
        self._neutral = observation.neutral.astype(float)
        is_binary = [_is_binary(name, preference) for name in self._names]
        self._is_binary = np.array(is_binary * observation.history + [False] * self._network.memory)
        self._memory = self._network.reachable_memory(*_widened(self._low, self._high))

    def features_of(self, name: str) -> list[Feature]:
        """Return the observed features that a condition's name means.

        Raises:
            ValueError: there is none.
        """
        found = [one for one in self._features if one.name == name]
        found = found or [one for one in self._features if quantity(one) == name]
        if not found:
            known = dict.fromkeys(text for one in self._features for text in (quantity(one), one.name))
            raise ValueError(f"the policy observes no {name!r}; conditions can be on {', '.join(known)}")
        return found

    def range_of(self, feature: Feature, conditions: Sequence[Comparison]) -> tuple[float, float]:
        """Return the lowest and the highest value of a feature in the latest step, under conditions."""
        place = self._inputs - len(self._names) + self._names.index(feature.name)
        low, high = self._box(conditions)
        return float(low[place]), float(high[place])

    def solve(self, asked: Property, budget: int) -> _Outcome:
        """Search for the largest value of what would refute a claim.

        Raises:
            ValueError: no observation fulfils the conditions, or the claim is not one about the policy's actions.
        """
        goal = self._goal(asked.claim)
        box = self._box([*asked.conditions, *self._choices(asked.claim)])
        low, high = (np.hstack([end[np.newaxis], of]) for end, of in zip(_widened(*box), self._memory, strict=True))
        most, blame, _ = self._bound(goal, low, high)
        point, reached = self._climb(goal, box)
        boxes = 1
        settled = -math.inf
        batch = int(np.clip(_BATCH_VALUES / self._network.values, 1, _BATCH))

        def is_over() -> bool:
            edge = most.max(initial=-np.inf)
            if goal.limit is not None:
                return bool(edge <= goal.limit or reached > goal.limit)
            return bool(edge <= reached + _TOLERANCE * max(abs(reached), _TOLERANCE))

        while boxes < budget and not is_over():
            order = np.argsort(-most)
            chosen, rest = order[:batch], order[batch:]
            halves = self._halves(low[chosen], high[chosen], blame[chosen])
            found, found_blame, slopes = self._bound(goal, *halves)
            boxes += len(found)
            if not self._network.memory:
                corners = np.clip(np.where(slopes > 0, halves[1], halves[0]), *box)
                values = self._values(goal, corners)
                best = int(values.argmax())
                if values[best] > reached:
                    reached, point = float(values[best]), corners[best]
            edge = reached if goal.limit is None else goal.limit
            kept = found > edge
            settled = max(settled, found[~kept].max(initial=-np.inf))
            low, high = (np.vstack([old[rest], new[kept]]) for old, new in zip((low, high), halves, strict=True))
            blame = np.vstack([blame[rest], found_blame[kept]])
            most = np.append(most[rest], found[kept])
        return _Outcome(goal, float(most.max(initial=max(settled, reached))), reached, point, box, boxes)

    def certificate(self, asked: Property, stated: Property, outcome: _Outcome) -> Certificate:
        """Return what became of a property."""
        goal, claim = outcome.goal, stated.claim
        bound = reached = None
        if claim.number != LAST:
            bound, reached = goal.sign * outcome.most, goal.sign * outcome.reached
            if claim.number is None:
                bound = _rounded(bound, goal.sign)
                stated = dataclasses.replace(stated, claim=dataclasses.replace(claim, number=bound))
        point = outcome.point
        if outcome.verdict == REFUTED:
            point = self._simplified(outcome)
        return Certificate(
            asked=asked,
            stated=stated,
            verdict=outcome.verdict,
            bound=bound,
            reached=reached,
            observation=tuple(map(float, point[-self._inputs :])),
            before=tuple(map(float, point[: -self._inputs])),
            boxes=outcome.boxes,
            decision=self._decide(point),
            is_of_action=outcome.verdict == PROVED and outcome.most >= self._most_of_any(goal, outcome.box),
            example=self._describe(point[-self._inputs :]),
            example_before=self._describe(point[: -self._inputs]) if self._network.memory else {},
        )

    def _box(self, conditions: Sequence[Comparison]) -> Box:
        """Return lowest and highest observations that fulfil the conditions in the latest step."""
        low, high = self._low.copy(), self._high.copy()
        latest = self._inputs - len(self._names)
        for condition in conditions:
            for feature in self.features_of(condition.name):
                edge = float(condition.number)  # type: ignore[arg-type]  # what is sought was replaced
                if condition.name != feature.name:
                    edge = scale(feature).of(edge)
                    edge = feature.low if math.isnan(edge) else edge  # the logarithm of a number below 0
                edge = float(np.float32(min(max(edge, feature.low), feature.high)))
                place = latest + self._names.index(feature.name)
                if condition.sign != "<=":
                    low[place] = max(low[place], edge)
                if condition.sign != ">=":
                    high[place] = min(high[place], edge)
                if low[place] > high[place]:
                    raise NothingObservedError(f"no observation fulfils {condition} and the other conditions")
        return low, high

    def _choices(self, claim: Comparison) -> list[Comparison]:
        """Return, for a claim about the last choice, that it was one that the policy can make."""
        if claim.number != LAST:
            return []
        feature = FEATURES[_last_feature(claim.name, self._action.cwnd_scale)]
        if feature.name == "asinh_excess_window":
            return []
        low, high = self._action.pacing_gain if claim.name == "pacing_gain" else self._action.cwnd_gain
        return [Comparison(feature.name, sign, _controllers.log2(gain)) for sign, gain in ((">=", low), ("<=", high))]

    def _bound(self, goal: _Goal, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
        """Return upper bounds of a goal per box, what to blame for their width, and where they are largest."""
        of_outputs = np.zeros(2)
        of_outputs[goal.output] = goal.sign
        found = self._network.most(low, high, of_outputs, np.zeros(low.shape[1]))
        edges = np.clip(found.most, -1.0, 1.0)
        if not self._is_clipped:
            edges = np.minimum(np.tanh(found.most) + 1e-6, 1.0)
        most = goal.most(edges, low, high)
        if goal.of_inputs is not None and goal.linear is not None and self._is_clipped:
            found = self._network.most(low, high, of_outputs, goal.of_inputs)
            most = np.minimum(most, goal.linear(found.most, low, high))
        blame = found.blame + 1e-9 * np.abs(found.slopes) * (high - low)
        return most, np.where(high > low, blame, -1.0), found.slopes[:, : self._inputs]

    def _halves(self, low: Floats, high: Floats, blame: Floats) -> tuple[Floats, Floats]:
        """Return both halves of each box, divided where there is most to blame."""
        rows = np.arange(len(low))
        places = blame.argmax(axis=1)
        ends = low[rows, places], high[rows, places]
        middle = (ends[0] + ends[1]) / 2
        is_binary = self._is_binary[places] & (ends[1] - ends[0] > 4 * _MARGIN)
        first, second = high.copy(), low.copy()
        first[rows, places] = np.where(is_binary, ends[0] + 2 * _MARGIN, middle)
        second[rows, places] = np.where(is_binary, ends[1] - 2 * _MARGIN, middle)
        return np.vstack([low, second]), np.vstack([first, high])

    def _climb(self, goal: _Goal, box: Box) -> tuple[Floats, float]:
        """Return a corner of the box where a goal is large, and how large: no other value of one number is better."""
        low, high = box
        if self._network.memory:
            low, high = np.append(self._low, low), np.append(self._high, high)
        starts, climbers = (_STARTS_WITH_MEMORY, 1) if self._network.memory else (_STARTS, _CLIMBERS)
        corners = np.where(np.random.default_rng(0).random((starts, len(low))) < 0.5, low, high)
        values = self._values(goal, corners)
        best = np.argsort(-values)[:climbers]
        points, reached = corners[best], values[best]
        moves = np.vstack([np.eye(len(low), dtype=bool)] * 2)
        targets = np.vstack([np.tile(low, (len(low), 1)), np.tile(high, (len(low), 1))])
        while True:
            others = np.where(moves, targets, points[:, np.newaxis])
            values = self._values(goal, others.reshape(-1, len(low))).reshape(len(points), -1)
            best = values.argmax(axis=1)
            rows = np.arange(len(points))
            is_better = values[rows, best] > reached + 1e-9 * (1.0 + np.abs(reached))
            if not is_better.any():
                break
            points = np.where(is_better[:, np.newaxis], others[rows, best], points)
            reached = np.maximum(reached, values[rows, best])
        top = int(reached.argmax())
        return points[top], float(reached[top])

    def _values(self, goal: _Goal, points: Floats) -> Floats:
        """Return a goal's values where the network in C++ is given these observations.

        Args:
            goal: the goal.
            points: observations, shape (n, inputs); with a memory, before them what was observed in the steps before.
        """
        actions, now = self._act(points)
        return goal.seen(actions[:, goal.output], now)

    def _most_of_any(self, goal: _Goal, box: Box) -> float:
        """Return what a goal is at most whatever the network is."""
        low, high = (end[np.newaxis] for end in box)
        return float(goal.most(np.ones(1), low, high)[0])

    def _act(self, points: Floats) -> tuple[Floats, Floats]:
        """Return the actions on these observations, and the latest of these, rounded to single precision."""
        seen = points.astype(np.float32)
        network = self._compiled
        state = np.zeros((len(seen), network.state_size), np.float32)
        now = np.ascontiguousarray(seen[:, -self._inputs :])
        if network.state_size:
            before = np.ascontiguousarray(seen[:, : -self._inputs])
            for _ in range(_PAST):
                network.forward(before, state)
        return network.forward(now, state).astype(float), now.astype(float)

    def _decide(self, point: Floats) -> dict[str, float]:
        actions, now = self._act(point[np.newaxis])
        bdp = self._bdps(now, now)[0]
        cwnd, pacing = self._action.all_gains(actions, bdp)[:, 0].tolist()
        decided = {"cwnd_gain": cwnd, "pacing_gain": pacing}
        if self._action.cwnd_scale == "packets":
            packets = {"excess_packets": _controllers.sinh(PACKETS_STEEPNESS * float(actions[0, 0]))}
            decided = packets | decided if "log_bdp" in self._names else packets | {"pacing_gain": pacing}
        return decided

    def _simplified(self, outcome: _Outcome) -> Floats:
        """Return what still refutes a claim, with as many features as possible at their neutral values."""
        goal = outcome.goal
        assert goal.limit is not None
        point = outcome.point.copy()
        low, high = outcome.box
        if self._network.memory:
            low, high = np.append(self._low, low), np.append(self._high, high)
        plain = np.clip(np.resize(self._neutral, len(point)), low, high)
        for place in range(len(point)):
            other = point.copy()
            other[place] = plain[place]
            if self._values(goal, other[np.newaxis])[0] > goal.limit:
                point = other
        return point

    def _describe(self, observation: Floats) -> dict[str, float]:
        """Return the quantities of an observation that are not neutral."""
        found = {}
        for place, (value, neutral) in enumerate(zip(observation, self._neutral, strict=False)):
            feature = self._features[place % len(self._features)]
            ago = (self._inputs - 1 - place) // len(self._features)
            if value != neutral:
                name = quantity(feature) + (f" {ago} steps before" if ago else "")
                found[name] = float(f"{scale(feature).back(value):.4g}")
        return found

    def _goal(self, claim: Comparison) -> _Goal:
        output = 1 if claim.name == "pacing_gain" else 0
        sign = 1.0 if claim.sign == "<=" else -1.0
        if claim.name == "excess_packets" and self._action.cwnd_scale != "packets":
            raise ValueError(
                "a claim about excess_packets needs a policy of action.cwnd_scale=packets, and this one has "
                f"{self._action.cwnd_scale}; claim something about cwnd_gain"
            )
        if claim.number == LAST:
            return self._goal_of_last(claim.name, output, sign)
        has_bdp = claim.name == "cwnd_gain" and self._action.cwnd_scale == "packets"

        def value(actions: Floats, bdp: Floats) -> Floats:
            if claim.name == "excess_packets":
                return np.array([_controllers.sinh(PACKETS_STEEPNESS * action) for action in actions])
            return np.asarray(self._action.all_gains(np.stack([actions, actions], axis=1), bdp)[output])

        def most(edges: Floats, low: Floats, high: Floats) -> Floats:
            bdps = self._bdps(low, high) if has_bdp else [np.ones(len(edges))]
            return np.asarray(np.maximum.reduce([sign * value(sign * edges, bdp) for bdp in bdps]))

        def seen(actions: Floats, observations: Floats) -> Floats:
            bdps = self._bdps(observations, observations) if has_bdp else [np.ones(len(actions))]
            return np.asarray(np.maximum.reduce([sign * value(actions, bdp) for bdp in bdps]))

        limit = None if claim.number is None else sign * float(claim.number)
        return _Goal(output=output, sign=sign, most=most, seen=seen, limit=limit)

    def _bdps(self, low: Floats, high: Floats) -> list[Floats]:
        """Return least and largest BDP of observations, in packets, and NaN where there may be no estimate."""
        if "log_bdp" not in self._names:
            return [np.full(len(low), bdp) for bdp in (LEAST_BDP, _MOST_BDP, math.nan)]
        feature = FEATURES["log_bdp"]
        place = self._inputs - len(self._names) + self._names.index("log_bdp")
        least, most = low[:, place], high[:, place]
        has_none = (least <= feature.neutral) & (most >= feature.neutral)
        return [
            np.where(least <= feature.low, LEAST_BDP, 10.0**least),
            np.where(most >= feature.high, _MOST_BDP, 10.0**most),
            np.where(has_none, math.nan, 10.0**least),
        ]

    def _goal_of_last(self, claimed: str, output: int, sign: float) -> _Goal:
        name = _last_feature(claimed, self._action.cwnd_scale)
        if name not in self._names:
            raise ValueError(f"a claim about the last choice needs a policy that observes {name}")
        feature = FEATURES[name]
        place = self._inputs - len(self._names) + self._names.index(name)
        lowest, highest = self._action.pacing_gain if output else self._action.cwnd_gain
        is_excess = not output and self._action.cwnd_scale == "excess"
        slope = 2.0 / math.log2(highest / lowest)
        shift = -1.0 - slope * math.log2(lowest)
        if name == "asinh_excess_window":
            slope, shift = 1.0 / PACKETS_STEEPNESS, 0.0

        def last(values: Floats) -> Floats:
            """Return the action that was chosen last."""
            if not is_excess:
                return slope * values + shift
            excess = np.log2(np.maximum(2.0**values - 1.0, 1e-9) / (lowest - 1.0))
            return np.asarray(2.0 * excess / math.log2((highest - 1.0) / (lowest - 1.0)) - 1.0)

        def ends(low: Floats, high: Floats) -> tuple[Floats, Floats]:
            """Return the least and the largest last action: where the feature is clipped, it may be any beyond."""
            least, most = last(low[:, place]), last(high[:, place])
            least = np.where(low[:, place] <= feature.low, np.minimum(least, -1.0), least)
            most = np.where(high[:, place] >= feature.high, np.maximum(most, 1.0), most)
            return least, most

        def most(edges: Floats, low: Floats, high: Floats) -> Floats:
            least_last, most_last = ends(low, high)
            return edges - least_last + 1e-9 if sign > 0 else edges + most_last + 1e-9

        def linear(sums: Floats, low: Floats, high: Floats) -> Floats:
            least_last, most_last = ends(low, high)
            beyond = least_last if sign > 0 else -most_last
            exact = last(low[:, place]) if sign > 0 else -last(high[:, place])
            found = np.maximum(sums - sign * shift, -1.0 - beyond) + 1e-9
            return np.where(beyond < exact, np.inf, found)

        def seen(actions: Floats, observations: Floats) -> Floats:
            above = sign * (actions - last(observations[:, place]))
            if name != "asinh_excess_window" or "log_bdp" not in self._names:
                return np.asarray(above)
            # The bounds of the gain hold for both: of what was chosen last, and of what is chosen.
            bdp = self._bdps(observations, observations)[0]
            before = 1.0 + np.sinh(observations[:, place]) / bdp
            now = self._action.all_gains(np.stack([actions, actions], axis=1), bdp)[0]
            is_possible = (before >= lowest - _SAME_GAIN) & (before <= highest + _SAME_GAIN)
            above = np.where(sign * (now - before) > _SAME_GAIN, above, np.minimum(above, 0.0))
            return np.where(is_possible, above, -_IMPOSSIBLE)

        of_inputs = np.zeros(self._inputs + self._network.memory)
        of_inputs[place] = -sign * slope
        goal = _Goal(output=output, sign=sign, most=most, seen=seen, limit=_SAME_ACTION)
        return goal if is_excess else dataclasses.replace(goal, of_inputs=of_inputs, linear=linear)


def _values(feature: Feature, preference: float | None) -> tuple[float, float]:
    """Return the lowest and the highest value of a feature, for flows of this preference."""
    if preference is None:
        return feature.low, feature.high
    if feature.name == PREFERENCE:  # neutral in the first step
        return min(preference, feature.neutral), max(preference, feature.neutral)
    if not feature.name.endswith(BY_PREFERENCE):
        return feature.low, feature.high
    more = preference - registry.defaults("policy")[PREFERENCE]
    if more == 0.0:
        return 0.0, 0.0
    if feature.name.startswith("is_"):
        return min(more, 0.0), max(more, 0.0)
    if feature.name.removesuffix(BY_PREFERENCE) in _NEVER_BELOW_0:
        return (0.0, feature.high) if more > 0.0 else (feature.low, 0.0)
    # It is clipped after the product, so what is beyond the bounds of the plain feature has the other sign.
    return feature.low, feature.high


_NEVER_BELOW_0: Final = frozenset(
    {
        *("delivery_rate_ratio", "send_rate_ratio", "rtt_last_ratio", "in_flight_ratio", "cwnd_ratio", "loss_rate"),
        *("log_jitter_backlog", "log_spread_backlog"),
    }
)
"""Features whose formulas in features.cc give no number below 0, even before clipping: a quotient of counts, rates,
windows or RTTs, or the logarithm of 1 and such a quotient. Others do, where the plain feature is clipped at 0: where an
RTT is below min_rtt, say."""


def _is_binary(name: str, preference: float | None) -> bool:
    """Return whether a feature has no value between its lowest and its highest."""
    if name == PREFERENCE:
        return preference is not None
    return name.startswith("is_") and not (preference is None and name.endswith(BY_PREFERENCE))


def _widened(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    return low - _MARGIN, high + _MARGIN


def _rounded(bound: float, sign: float) -> float:
    """Return a bound with four digits that is not tighter."""
    return float(Context(prec=4, rounding=ROUND_CEILING if sign > 0 else ROUND_FLOOR).create_decimal(repr(bound)))

"""Distributions over scenarios: what an agent trains on."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bbrgym.envs import mahimahi
from bbrgym.envs.scenario import Flow, Scenario, resolve_rate_trace

KINDS: Final = ("uniform", "log_uniform", "choice")
"""How a value can be drawn."""


@dataclass(frozen=True)
class Distribution:
    """A scenario whose values are given or drawn, independently of each other. Made by `from_dict`.

    Wherever a scenario or a flow has a value, there can be instead

        {uniform: [a, b]}         evenly between a and b (b included where the field takes whole numbers)
        {log_uniform: [a, b]}     evenly in the logarithm, 0 < a < b
        {choice: [x, y, …]}       one of these, each as likely; they can be whole flows or lists of flows,
                                  and drawn themselves

    A `rate_trace`, or each of a choice of them, is read once, when the distribution is made, for the longest duration.
    For example `{rate_mbps: {log_uniform: [5, 50]}, flows: [{algorithm: agent, rtt_ms: {uniform: [10, 100]}}]}`.
    A scenario is the distribution that always gives itself.
    """

    plain: Mapping[str, Any]
    agents: int = field(init=False, compare=False)
    """Number of agent flows, the same in every scenario."""
    max_flows: int = field(init=False, compare=False)
    """The largest number of flows that a scenario has."""
    _only: Scenario | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.plain, Mapping):
            raise ValueError(f"scenario={self.plain!r} is not possible: a scenario must be a mapping of its fields")
        object.__setattr__(self, "plain", _canonical(_with_rates_of_traces(self.plain)))
        scenarios = [_scenario(values) for values in _variants(self.plain, "scenario")]
        agents = {len(scenario.agent_flows) for scenario in scenarios}
        if len(agents) > 1:
            raise ValueError(
                f"a distribution gives {' or '.join(map(str, sorted(agents)))} agent flows: their number must always "
                "be the same"
            )
        object.__setattr__(self, "agents", agents.pop())
        object.__setattr__(self, "max_flows", max(len(scenario.flows) for scenario in scenarios))
        only = None if _is_drawn(self.plain) else scenarios[0]
        object.__setattr__(self, "_only", only)
        if only is not None:  # with what was left to the defaults, so that equal scenarios are equal distributions
            object.__setattr__(self, "plain", _canonical(only.to_dict()))

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Distribution:
        """From plain types, as a YAML file has them.

        Raises:
            ValueError: naming the bad entry: an unknown field, bounds that do not rise, a value that no scenario can
                have, a number of agent flows that is not always the same.
        """
        return cls(plain)

    @classmethod
    def of(cls, scenario: Scenario | Distribution | Mapping[str, Any]) -> Distribution:
        """Any of the three forms as a distribution."""
        if isinstance(scenario, Distribution):
            return scenario
        return cls(scenario.to_dict() if isinstance(scenario, Scenario) else scenario)

    @property
    def example(self) -> Scenario:
        """One of its scenarios, always the same one: with every drawn value at its first bound or choice."""
        return _scenario(next(iter(_variants(self.plain, "scenario"))))

    def sample(self, rng: np.random.Generator) -> Scenario:
        """Draw a scenario."""
        return self._only or _scenario(_draw(self.plain, rng))

    def to_dict(self) -> dict[str, Any]:
        """Plain types only; `from_dict` makes it again."""
        return typing.cast(dict[str, Any], _canonical(self.plain))

    def __hash__(self) -> int:
        return hash(repr(self.plain))


def _with_rates_of_traces(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """With `rate_schedule` in place of `rate_trace`, as `Scenario.from_dict` makes it."""
    if "rate_trace" not in plain:
        return plain
    durations_s = _variants(plain.get("duration_s", Scenario.duration_s), "scenario.duration_s")
    longest_s = max(filter(_is_finite, durations_s), default=Scenario.duration_s)  # a bad one is refused later

    def resolve(trace: Any) -> Any:
        if _kind(trace) == "choice":
            _check_drawn(trace, "choice", "scenario.rate_trace")
            return {"choice": [resolve(entry) for entry in trace["choice"]]}
        return [] if trace is None else [list(pair) for pair in mahimahi.from_config(trace, longest_s)]

    return resolve_rate_trace(plain, resolve)


def _canonical(node: Any) -> Any:
    """Plain containers with sorted keys, so that the order in a file does not change what is drawn."""
    if isinstance(node, Mapping):
        return {key: _canonical(node[key]) for key in sorted(node, key=str)}
    if isinstance(node, list | tuple):
        return [_canonical(entry) for entry in node]
    return node


def _kind(node: Any) -> str | None:
    if isinstance(node, dict):  # not Mapping, which is slow to ask for; _canonical has made it one
        for kind in KINDS:
            if kind in node:
                return kind
    return None


def _is_drawn(node: Any) -> bool:
    if isinstance(node, Mapping):
        return _kind(node) is not None or any(_is_drawn(value) for value in node.values())
    return isinstance(node, list) and any(_is_drawn(entry) for entry in node)


def _draw(node: Any, rng: np.random.Generator, name: str = "") -> Any:
    kind = _kind(node)
    if kind == "choice":
        return _draw(node[kind][int(rng.integers(len(node[kind])))], rng, name)
    if kind is not None:
        low, high = node[kind]
        if kind == "log_uniform":
            value = min(max(math.exp(rng.uniform(math.log(low), math.log(high))), low), high)
            return round(value) if name in _WHOLE else value
        return int(rng.integers(round(low), round(high), endpoint=True)) if name in _WHOLE else rng.uniform(low, high)
    if isinstance(node, dict):
        return {key: _draw(value, rng, key) for key, value in node.items()}
    return [_draw(entry, rng) for entry in node] if isinstance(node, list) else node


def _variants(node: Any, where: str, name: str = "") -> Iterator[Any]:
    """The node with everything at its first bound or choice, then with each other bound and choice, one at a time.

    A scenario's checks are an interval a field and orders of two fields (start_s before stop_s), so values that pass
    at these corners pass everywhere between.
    """
    kind = _kind(node)
    if kind is not None:
        _check_drawn(node, kind, where)
        if kind == "choice":
            for index, entry in enumerate(node[kind]):
                yield from _variants(entry, f"{where}.choice[{index}]", name)
        else:
            yield from (round(bound) if name in _WHOLE else float(bound) for bound in node[kind])
        return
    if not isinstance(node, Mapping | list):
        yield node
        return
    entries = list(node.items()) if isinstance(node, Mapping) else [(str(index), e) for index, e in enumerate(node)]
    variants = [list(_variants(value, f"{where}.{key}", key)) for key, value in entries]

    def make(values: list[Any]) -> Any:
        return dict(zip([key for key, _ in entries], values, strict=True)) if isinstance(node, Mapping) else values

    first = [values[0] for values in variants]
    yield make(first)
    for position, values in enumerate(variants):
        for value in values[1:]:
            # Beside the first of the others, and beside the last: two fields can have an order (start_s, stop_s).
            for others in (first, [v[-1] for v in variants]):
                yield make([*others[:position], value, *others[position + 1 :]])


def _check_drawn(node: Mapping[str, Any], kind: str, where: str) -> None:
    given = node[kind]
    what = f"{where}={dict(node)!r} is not possible: "
    if len(node) > 1:
        raise ValueError(f"{what}give one of {', '.join(KINDS)} and nothing beside it")
    if kind == "choice":
        if not isinstance(given, list) or not given:
            raise ValueError(f"{what}choice must be a list of at least one value")
        return
    numbers = isinstance(given, list) and len(given) == 2 and all(_is_finite(bound) for bound in given)
    lowest = 0.0 if kind == "log_uniform" else -math.inf
    if not numbers or not lowest < given[0] < given[1]:
        good = "two rising numbers above 0" if kind == "log_uniform" else "two rising numbers"
        raise ValueError(f"{what}{kind} must be {good}, like [5, 50]")


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _scenario(values: Any) -> Scenario:
    flows = values.get("flows", []) if isinstance(values, Mapping) else None
    if not isinstance(flows, list) or not all(isinstance(flow, Mapping) for flow in flows):
        raise ValueError(f"scenario={values!r} is not possible: it must be a mapping, and its flows a list of mappings")
    try:
        return Scenario.from_dict(values)
    except TypeError as error:  # a value of another type than the field's
        raise ValueError(f"scenario={values!r} is not possible: {error}") from error


_WHOLE: Final = frozenset(
    field.name
    for cls in (Scenario, Flow)
    for field in dataclasses.fields(cls)
    if int in ((hint := typing.get_type_hints(cls)[field.name]), *typing.get_args(hint))
)
"""The fields that take whole numbers."""

"""Distributions over scenarios: what an agent trains on."""

from __future__ import annotations

import dataclasses
import itertools
import math
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np

from bbrgym._controllers import exp, log
from bbrgym.checks import check_name, is_number
from bbrgym.envs import rate_trace, rtt_trace
from bbrgym.envs.fields import FLOW_FIELDS, SCENARIO_FIELDS
from bbrgym.envs.named import named_scenario
from bbrgym.envs.scenario import CHECKED_TOGETHER, MOST_FLOWS, Flow, Scenario, resolve_trace

KINDS: Final = ("uniform", "log_uniform", "choice")
"""How a value can be drawn."""
ABSENT: Final[Mapping[str, Any]] = {"algorithm": "agent", "rtt_ms": 5.0, "stop_s": 0.0}
"""An agent flow that an episode lacks (`Flow.is_absent`). Its RTT is short: the longest one of the agents can set the
length of steps."""


@dataclass(frozen=True)
class Distribution:
    """A scenario whose values are given or drawn, independently of each other; made with `from_dict`.

    Flows can be `Flow`s or mappings. Any value of a scenario or a flow can be replaced by

        {uniform: [a, b]}         uniform between a and b (b included where the field takes integers)
        {log_uniform: [a, b]}     uniform in the logarithm, 0 < a < b
        {choice: [x, y, …]}       one of these, equally likely; they can be whole flows or lists of flows,
                                  and contain draws themselves

    For example `{rate_mbps: {log_uniform: [5, 50]}, flows: [{algorithm: agent, rtt_ms: {uniform: [10, 100]}}]}`. A
    `rate_trace` or a flow's `rtt_trace`, or each in a choice, is read once, when the distribution is made, for the
    longest duration. The values of a `workload` can be drawn too, its `seed` first of all: {uniform: [0, 1000000]}
    gives every scenario other arrivals. A plain scenario is a distribution that always draws this scenario.

    Lists of flows that are chosen can have different numbers of agents, at least one each. A list that has fewer than
    the longest gets `ABSENT` ones after its last, which take no part.
    """

    plain: Mapping[str, Any]
    agents: int = field(init=False, compare=False)
    """Number of agent flows, the same in every scenario."""
    max_flows: int = field(init=False, compare=False)
    """The largest number of flows of a scenario."""
    duration_s: float | None = field(init=False, compare=False)
    """The duration of every scenario; None if they differ."""
    example: Scenario = field(init=False, repr=False, compare=False)
    """The scenario with every drawn value at its first bound or choice."""
    is_drawn: bool = field(init=False, repr=False, compare=False)
    """Whether scenarios differ."""

    def __post_init__(self) -> None:
        if not isinstance(self.plain, Mapping):
            raise ValueError(f"scenario must be a mapping of its fields, got {self.plain!r}")
        object.__setattr__(self, "plain", _canonical(_with_schedules_of_traces(_canonical(self.plain))))
        scenarios, agents = self._corners()
        if len(agents) > 1:
            object.__setattr__(self, "plain", _canonical(_with_absent_agents(self.plain)))
            scenarios, agents = self._corners()
        if len(agents) > 1:
            counts = " or ".join(map(str, sorted(agents)))
            raise ValueError(f"a distribution must always have the same number of agent flows, got {counts}")
        object.__setattr__(self, "agents", agents.pop())
        object.__setattr__(self, "example", scenarios[0])
        object.__setattr__(self, "is_drawn", _is_drawn(self.plain))
        # How many flows a workload has depends on every draw.
        is_open = self._has_workload and self.is_drawn
        most = MOST_FLOWS if is_open else max(len(scenario.flows) for scenario in scenarios)
        object.__setattr__(self, "max_flows", most)
        durations_s = {scenario.duration_s for scenario in scenarios}
        object.__setattr__(self, "duration_s", durations_s.pop() if len(durations_s) == 1 else None)
        if not self.is_drawn:  # with the defaults, so that equal scenarios are equal distributions
            object.__setattr__(self, "plain", _canonical(self.example))

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Distribution:
        """Make a distribution of plain types, as in a YAML file.

        Raises:
            ValueError: naming the bad entry: an unknown field, bounds that do not rise, a bad value of a scenario, or a
                number of agent flows that differs within one list of flows, or is 0 in some and not in others.
        """
        return cls(plain)

    @classmethod
    def of(cls, scenario: Scenario | Distribution | Mapping[str, Any] | str) -> Distribution:
        """Return a scenario, a distribution, the plain mapping or the name of either as a distribution."""
        if isinstance(scenario, Distribution):
            return scenario
        if isinstance(scenario, str):
            return _named(scenario)
        return cls(scenario.to_dict() if isinstance(scenario, Scenario) else scenario)

    @property
    def agent_flows(self) -> tuple[int, ...]:
        """Indices of the flows that are an agent's in some scenario."""
        lists = (flows for scenario in _options(self.plain) for flows in _options(scenario.get("flows", [])))
        return tuple(sorted({index for flows in lists for index in _agents_of(flows)}))

    @property
    def has_finite_flows(self) -> bool:
        """Whether a scenario can have a flow with a `size_bytes`, as those of a workload."""
        if self._has_workload:
            return True
        lists = (flows for scenario in _options(self.plain) for flows in _options(scenario.get("flows", [])))
        for flows in lists:
            options = [option for flow in flows for option in _options(flow)]
            if any(size is not None for option in options for size in _options(option.get("size_bytes"))):
                return True
        return False

    def _corners(self) -> tuple[list[Scenario], set[int]]:
        """Return the scenarios that stand for all, and the numbers of agent flows that they have."""
        corners = list(_variants(self.plain, "scenario"))
        flows: dict[int, Flow] = {}  # most corners have most of their flows in common
        scenarios = [_scenario(values, flows) for values in corners]
        return scenarios, {len(scenario.agent_flows) for scenario in scenarios}

    @property
    def _has_workload(self) -> bool:
        return any(scenario.get("workload") is not None for scenario in _options(self.plain))

    def sample(self, rng: np.random.Generator) -> Scenario:
        """Draw a scenario."""
        return _scenario(_draw(self.plain, rng)) if self.is_drawn else self.example

    def with_one_agent(self, others: str) -> Distribution:
        """Return the distribution with `others` and its default parameters in place of every agent but the first.

        Agents that are absent are left out.
        """
        return self if self.agents < 2 else _with_one_agent(self, others)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, of which `from_dict` makes an equal distribution."""
        return typing.cast(dict[str, Any], _canonical(self.plain))

    def __hash__(self) -> int:
        return hash(_hashable(self.plain))


@cache  # checking a large distribution takes half a second
def _named(name: str) -> Distribution:
    return Distribution(named_scenario(name))


@lru_cache(maxsize=16)
def _with_one_agent(distribution: Distribution, others: str) -> Distribution:
    return Distribution(_mapped(distribution.plain, lambda scenario: _one_agent(scenario, others)))


def _one_agent(scenario: Mapping[str, Any], others: str) -> dict[str, Any]:
    def replace(flow: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in flow.items() if key != "parameters"} | {"algorithm": others}

    def with_first(flows: list[Any]) -> list[Any]:
        others_of = _agents_of(flows)[1:]
        return [
            _mapped(flow, replace) if index in others_of else flow
            for index, flow in enumerate(flows)
            if index not in others_of or not _is_absent(flow)
        ]

    return {**scenario, "flows": _mapped(scenario["flows"], with_first)}


def _with_absent_agents(plain: Mapping[str, Any]) -> Any:
    """Return a distribution whose lists of flows have as many agents as the longest one: those that lack are absent."""
    lists = (flows for scenario in _options(plain) for flows in _options(scenario.get("flows", [])))
    most = max(len(_agents_of(flows)) for flows in lists)

    def pad(flows: list[Any]) -> list[Any]:
        agents = _agents_of(flows)
        if not agents:
            return flows
        end = agents[-1] + 1
        return [*flows[:end], *[ABSENT] * (most - len(agents)), *flows[end:]]

    def pad_scenario(scenario: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**scenario, "flows": _mapped(scenario["flows"], pad)} if "flows" in scenario else scenario

    return _mapped(plain, pad_scenario)


def _agents_of(flows: list[Any]) -> list[int]:
    """Return which places of a list of flows are agents'.

    A list always has the same number of them, so a choice at one place of it is between agents, or between other flows:
    only a choice between whole lists can move agents.
    """
    firsts = [next(_options(flow)) for flow in flows]
    return [index for index, flow in enumerate(firsts) if next(_options(flow.get("algorithm"))) == "agent"]


def _is_absent(flow: Mapping[str, Any]) -> bool:
    return bool(flow.get("stop_s") == flow.get("start_s", Flow.start_s))


def _options(node: Any) -> Iterator[Any]:
    """Yield a value, or what it is chosen from."""
    if _kind(node) == "choice":
        for option in node["choice"]:
            yield from _options(option)
    else:
        yield node


def _mapped(node: Any, function: Callable[[Any], Any]) -> Any:
    """Return a value, or a choice of values, with a function applied to each."""
    if _kind(node) == "choice":
        return {"choice": [_mapped(option, function) for option in node["choice"]]}
    return function(node)


def _with_schedules_of_traces(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields with schedules in place of `rate_trace` and `rtt_trace`, as in `Scenario.from_dict`."""
    if _kind(plain) == "choice" and isinstance(plain["choice"], list):  # of whole scenarios
        options = plain["choice"]
        resolved = [_with_schedules_of_traces(each) if isinstance(each, Mapping) else each for each in options]
        return {**plain, "choice": resolved}
    durations_s = _variants(plain.get("duration_s", Scenario.duration_s), "scenario.duration_s")
    longest_s = max(filter(is_number, durations_s), default=Scenario.duration_s)  # a bad duration is refused later

    def resolve(trace: Any, read: Callable[[Any, float], Any], where: str) -> Any:
        if _kind(trace) == "choice":
            _check_drawn(trace, "choice", where)
            return {"choice": [resolve(entry, read, where) for entry in trace["choice"]]}
        return [] if trace is None else [list(pair) for pair in read(trace, longest_s)]

    def resolve_flows(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve_flows(entry) for entry in node]
        if not isinstance(node, Mapping):
            return node
        if "rtt_trace" in node:
            return resolve_trace("rtt", node, lambda trace: resolve(trace, rtt_trace.from_config, "flow.rtt_trace"))
        return {key: resolve_flows(value) if key in KINDS else value for key, value in node.items()}

    if "rate_trace" in plain:
        plain = resolve_trace(
            "rate", plain, lambda trace: resolve(trace, rate_trace.from_config, "scenario.rate_trace")
        )
    return {key: resolve_flows(value) if key == "flows" else value for key, value in plain.items()}


def _canonical(node: Any) -> Any:
    """Return plain containers with sorted keys, so that the order in a file does not change what is drawn.

    A scenario or a flow becomes a mapping, an array of NumPy a list.
    """
    if isinstance(node, np.ndarray | np.generic):
        return node.tolist()
    if isinstance(node, Scenario | Flow):
        return _canonical(node.to_dict())
    if isinstance(node, Mapping):
        return {key: _canonical(node[key]) for key in sorted(node, key=str)}
    if isinstance(node, list | tuple):
        return [_canonical(entry) for entry in node]
    return node


def _hashable(node: Any) -> Any:
    """Return tuples in place of what `_canonical` makes."""
    if isinstance(node, dict):
        return tuple((key, _hashable(value)) for key, value in node.items())
    return tuple(map(_hashable, node)) if isinstance(node, list) else node


def _kind(node: Any) -> str | None:
    if isinstance(node, dict):  # not Mapping, which is slow to check; _canonical has made it a dict
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
        return _draw(node[kind][rng.integers(len(node[kind]))], rng, name)
    if kind is not None:
        low, high = node[kind]
        if kind == "log_uniform":
            value = min(max(exp(rng.uniform(log(low), log(high))), low), high)
            return round(value) if name in _WHOLE else value
        if name in _WHOLE:
            return int(rng.integers(round(low), round(high), endpoint=True))
        return rng.uniform(low, high)
    if isinstance(node, dict):
        return {key: _draw(value, rng, key) for key, value in node.items()}
    if isinstance(node, list):
        return [_draw(entry, rng) for entry in node]
    return node


def _variants(node: Any, where: str, name: str = "") -> Iterator[Any]:
    """Yield the node with every draw at its first bound or choice, then with each of the others, one at a time.

    A scenario checks an interval per field, `CHECKED_TOGETHER` fields, and that the times of a schedule rise. All
    combinations of such fields and of neighbours in a schedule come, so values that pass at these corners pass
    everywhere between.
    """
    kind = _kind(node)
    if kind is not None:
        _check_drawn(node, kind, where)
        if kind == "choice":
            distinct = {repr(entry): index for index, entry in reversed([*enumerate(node[kind])])}
            for index in sorted(distinct.values()):  # an entry that is listed twice is only twice as likely
                yield from _variants(node[kind][index], f"{where}.choice[{index}]", name)
        else:
            yield from (round(bound) if name in _WHOLE else float(bound) for bound in node[kind])
        return
    if not isinstance(node, Mapping | list):
        yield node
        return
    if isinstance(node, Mapping) and name in _NUMBERS:
        for other in node:
            check_name("kind of draw", other, KINDS, of=where)
    entries = list(node.items()) if isinstance(node, Mapping) else [(str(index), e) for index, e in enumerate(node)]
    variants = [list(_variants(value, f"{where}.{key}", key)) for key, value in entries]

    def make(values: list[Any]) -> Any:
        return dict(zip([key for key, _ in entries], values, strict=True)) if isinstance(node, Mapping) else values

    first = [values[0] for values in variants]
    yield make(first)
    for position, values in enumerate(variants):
        for value in values[1:]:
            yield make([*first[:position], value, *first[position + 1 :]])
    places = {key: position for position, (key, _) in enumerate(entries) if len(variants[position]) > 1}
    dependent = [tuple(places[key] for key in group if key in places) for group in CHECKED_TOGETHER]
    if isinstance(node, list) and name != "flows":
        dependent = [*itertools.pairwise(places.values())]
    for drawn in dependent:
        if len(drawn) > 1:
            for together in itertools.product(*(variants[position] for position in drawn)):
                changed = dict(zip(drawn, together, strict=True))
                yield make([changed.get(position, value) for position, value in enumerate(first)])


def _check_drawn(node: Mapping[str, Any], kind: str, where: str) -> None:
    given = node[kind]
    if len(node) > 1:
        raise ValueError(f"{where} must have one of {', '.join(KINDS)} and nothing beside it, got {dict(node)!r}")
    if kind == "choice":
        if not isinstance(given, list) or not given:
            raise ValueError(f"{where}.choice must be a list of at least one value, got {given!r}")
        return
    numbers = isinstance(given, list) and len(given) == 2 and all(map(is_number, given))
    lowest = 0.0 if kind == "log_uniform" else -math.inf
    if not numbers or not lowest < given[0] < given[1]:
        good = "two rising numbers > 0" if kind == "log_uniform" else "two rising numbers"
        raise ValueError(f"{where}.{kind} must be {good}, like [5, 50], got {given!r}")


def _scenario(values: Any, made: dict[int, Flow] | None = None) -> Scenario:
    """Return a scenario of plain values.

    Args:
        values: plain types.
        made: flows by the `id` of their mapping, which lives as long; those that are missing are added.

    Raises:
        ValueError: naming the bad value and the good ones.
    """
    flows = values.get("flows", []) if isinstance(values, Mapping) else None
    if not isinstance(flows, list) or not all(isinstance(flow, Mapping) for flow in flows):
        raise ValueError(f"scenario must be a mapping, and its flows a list of mappings, got {values!r}")
    if made and flows:
        values = {**values, "flows": [made.get(id(flow), flow) for flow in flows]}
    try:
        scenario = Scenario.from_dict(values)
    except TypeError as error:  # a value of another type than the field's
        raise ValueError(f"scenario has a value of a wrong type: {error}, in {values!r}") from error
    if made is not None:
        made.update(zip(map(id, flows), scenario.flows, strict=False))  # those of a workload follow
    return scenario


_NUMBERS: Final = frozenset(
    name
    for fields in (SCENARIO_FIELDS, FLOW_FIELDS)
    for name, one in fields.items()
    if one.kind in ("number", "integer")
)
"""The fields that take numbers."""

_WHOLE: Final = frozenset(
    field.name
    for cls in (Scenario, Flow)
    for field in dataclasses.fields(cls)
    if int in ((hint := typing.get_type_hints(cls)[field.name]), *typing.get_args(hint))
) | {"seed"}  # of a workload
"""The fields that take integers."""

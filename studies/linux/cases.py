"""What is measured on Linux: scenarios, how often each runs, and who replaces the kernel's TCP in simulations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Final

from bbrgym import Flow, Scenario
from bbrgym.agents.policy import load_agent
from bbrgym.baselines.registry import COUNTERPARTS, LINUX_COMPARATORS, defaults
from bbrgym.benchmark.plan import Competitor
from bbrgym.envs.engine import hash_policies

WARMUP: Final = 0.25
"""Fraction of each run that is not measured."""


@dataclass(frozen=True)
class Case:
    """A scenario that is run several times, with the seeds from 1 on.

    Attributes:
        name: unique in its part of the page.
        scenario: with agents already assigned.
        runs: how often Linux runs it.
        agent: what steers the flows of algorithm `agent`, for `load_agent`.
        step_ms: length of a step.
    """

    name: str
    scenario: Scenario
    runs: int
    agent: str | None = None
    step_ms: float = 100.0

    @cached_property
    def key(self) -> str:
        """Equal for cases with equal runs, whose names may differ; new with another policy or default of an agent's."""
        agents = {flow.algorithm for flow in self.scenario.flows} & {"agent", "policy"}
        learned = {algorithm: defaults(algorithm) for algorithm in sorted(agents)} | hash_policies(self.scenario)
        digest = f" {sha256(json.dumps(learned).encode()).hexdigest()[:14]}" if learned else ""
        return f"{self.scenario.digest:014x}{digest}{f' {self.agent}' if self.agent else ''}"

    def simulated(self) -> Case:
        """Return the case with our algorithms in place of the kernel's, for engines without them."""
        flows = (
            replace(flow, algorithm=COUNTERPARTS.get(flow.algorithm, flow.algorithm)) for flow in self.scenario.flows
        )
        return replace(self, scenario=replace(self.scenario, flows=tuple(flows)))

    @property
    def is_of_kernel(self) -> bool:
        """Whether a flow is the kernel's own TCP."""
        return any(flow.algorithm in LINUX_COMPARATORS for flow in self.scenario.flows)


def _path(
    rate_mbps: float, buffer_bdp: float, *flows: tuple[str, float], loss: float = 0.0, duration_s: float = 20.0
) -> Scenario:
    return Scenario(
        rate_mbps=rate_mbps,
        buffer_bdp=buffer_bdp,
        loss=loss,
        duration_s=duration_s,
        flows=tuple(Flow(algorithm, rtt_ms=rtt_ms) for algorithm, rtt_ms in flows),
    )


def describe(scenario: Scenario) -> str:
    """Return a line: link, buffer, random loss, then every flow's algorithm and RTT."""
    flows = [f"{flow.algorithm} {flow.rtt_ms:g} ms" for flow in scenario.flows]
    loss = f", {100 * scenario.loss:g} % loss" if scenario.loss else ""
    return f"{scenario.rate_mbps:g} Mbit/s, {scenario.buffer_bdp:g} BDP{loss}: {', '.join(flows)}"


def _case(scenario: Scenario, runs: int) -> Case:
    return Case(describe(scenario), scenario, runs)


_SLOW_S: Final = 25.0
"""BBR flows with different RTTs, and BBR beside CUBIC, need longer for a steady state."""

GRID_RUNS: Final = 5
GRID: Final = tuple(
    _case(scenario, GRID_RUNS)
    for scenario in (
        # One flow.
        _path(5, 1, ("bbr", 40)),
        _path(50, 0.5, ("cubic", 50)),
        _path(20, 2, ("bbr", 100), loss=0.01),
        _path(20, 1, ("linux-bbr", 40)),
        # Flows of one kind.
        _path(40, 2, ("policy", 20), ("policy", 80)),
        _path(10, 8, ("cubic", 30), ("cubic", 30)),
        _path(100, 1, ("bbr", 10), ("bbr", 20), ("bbr", 50), ("bbr", 150)),
        _path(30, 1, ("policy", 15), ("policy", 30), ("policy", 60), ("policy", 120), loss=0.001),
        # Two flows of the kernel.
        _path(100, 5, ("linux-bbr", 10), ("linux-bbr", 50), duration_s=_SLOW_S),
        _path(100, 1, ("linux-bbr", 10), ("linux-bbr", 50), duration_s=_SLOW_S),
        _path(20, 5, ("linux-bbr", 10), ("linux-bbr", 50), duration_s=_SLOW_S),
        _path(12, 1, ("linux-bbr", 60), ("linux-cubic", 60), duration_s=_SLOW_S),
        _path(12, 4, ("linux-bbr", 60), ("linux-cubic", 60), duration_s=_SLOW_S),
        # Ours beside the kernel's.
        _path(20, 1, ("bbr", 40), ("linux-cubic", 40)),
        _path(20, 4, ("policy", 40), ("linux-cubic", 40)),
        _path(50, 2, ("cubic", 30), ("linux-cubic", 30)),
        _path(5, 2, ("bbr2", 150), ("linux-cubic", 150), loss=0.005),
        _path(20, 2, ("policy", 40), ("linux-bbr", 40)),
        _path(40, 1, ("bbr", 50), ("linux-bbr", 50)),
        _path(100, 0.5, ("cubic", 20), ("linux-bbr", 20)),
    )
)
"""The scenarios in which simulations are compared with Linux."""


def over_udp(case: Case) -> Case:
    """Return the case with ours over UDP in place of the kernel's TCP. It shows whether TCP or the host differs."""
    return replace(case.simulated(), runs=2)


COMPETITORS: Final = (
    *(Competitor(name, name) for name in ("policy", "da-bbr", "bbr2", "bbr", "cubic", "linux-cubic", "linux-bbr")),
    Competitor.from_dict({"name": "backlog", "agent": "scripted:backlog"}),
)
LEAGUE_RUNS: Final = 3
VICTIM: Final = "linux-cubic"
_JITTER_MS: Final = 0.5  # as in the league: without it, two flows of one deterministic algorithm stay in step in native


def _league_path(rate_mbps: float, buffer_bdp: float, rtts_ms: Sequence[float], loss: float = 0.0) -> Scenario:
    flows = tuple(Flow(rtt_ms=rtt_ms, jitter_ms=_JITTER_MS) for rtt_ms in rtts_ms)
    return Scenario(rate_mbps=rate_mbps, buffer_bdp=buffer_bdp, loss=loss, duration_s=20.0, flows=flows)


ALIKE: Final[Mapping[str, Scenario]] = {
    "slow": _league_path(10, 1, [40]),
    "lossy": _league_path(40, 0.5, [50], loss=0.001),
    "two-rtts": _league_path(20, 1, [20, 80]),
    "equal-rtts": _league_path(40, 2, [30, 30]),
    "three": _league_path(12, 4, [30, 60, 90]),
    "four": _league_path(60, 1, [10, 20, 40, 80]),
}
"""Scenarios of the league in which all flows have the same competitor."""

BESIDE: Final[Mapping[str, Scenario]] = {
    f"cubic-{buffer_bdp:g}bdp": replace(
        scenario, flows=(scenario.flows[0], replace(scenario.flows[1], algorithm=VICTIM))
    )
    for buffer_bdp in (0.5, 1, 2, 4)
    for scenario in [_league_path(20, buffer_bdp, [40, 40])]
}
"""Scenarios of the league in which the competitor has the first flow, and the kernel's CUBIC the second."""

ALONE: Final = {name: replace(scenario, flows=scenario.flows[1:]) for name, scenario in BESIDE.items()}
"""The same with the kernel's CUBIC alone."""


def league_case(name: str, competitor: Competitor) -> Case:
    """Return a competitor's case in a scenario of `ALIKE` or `BESIDE`."""
    scenario, roles = (ALIKE[name], None) if name in ALIKE else (BESIDE[name], (0,))
    agent = None if competitor.agent is None else str(competitor.agent)
    step_ms = 100.0 if agent is None else float(load_agent(agent).spec.interval_ms(scenario))
    taken = competitor.takes(scenario, roles)
    return Case(f"{name}, {competitor.name}", taken, runs=LEAGUE_RUNS, agent=agent, step_ms=step_ms)


def league_cases() -> list[Case]:
    """Return all cases of the league."""
    beside = [league_case(name, competitor) for name in (*ALIKE, *BESIDE) for competitor in COMPETITORS]
    return [*beside, *(Case(f"{name}, alone", scenario, LEAGUE_RUNS) for name, scenario in ALONE.items())]


BURSTS: Final = {"burst_packets": 0.0}
"""Our BBR sends bursts of about a millisecond, as Linux does for segmentation offload."""

DUEL: Final = Case("duel", _path(20, 2, ("policy", 40), ("linux-cubic", 40), duration_s=30.0), 1, step_ms=250.0)
"""The run that the figure shows; its trace is kept."""


def all_cases() -> list[Case]:
    """Return everything that the page needs of Linux."""
    return [*GRID, *(over_udp(case) for case in GRID if case.is_of_kernel), *league_cases(), DUEL]

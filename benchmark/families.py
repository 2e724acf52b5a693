"""The families of scenarios that a score draws from, anew for each run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bbrgym.envs.distribution import Distribution
from bbrgym.envs.scenario import Scenario

WARMUP: Final = 0.3
"""The fraction of each run that is not measured. All flows that stay have begun by then."""

VICTIMS: Final = ("cubic", "bbr")
"""What a candidate can harm: what most senders of the Internet use."""

_DURATION_S: Final = 30.0
_JITTER_MS: Final = 0.5  # without any, two flows of one deterministic algorithm stay in step


@dataclass(frozen=True)
class Draw:
    """A scenario that a score has drawn.

    Attributes:
        name: unique in the score, `<family>-<number>`.
        scenario: the candidate takes the flows that `roles` names.
        seed: of its run.
        roles: None for all flows.
        victim: what the other flow runs, in the families beside somebody else.
    """

    name: str
    scenario: Scenario
    seed: int
    roles: tuple[int, ...] | None = None
    victim: str | None = None


def draw_scenarios(seed: int, size: int = 1) -> list[Draw]:
    """Return `size` x (98 scenarios of one kind of flow, and 8 beside each of `VICTIMS`); the seed decides them."""
    found = []
    for place, (family, (count, plain)) in enumerate(_FAMILIES.items()):
        generator = np.random.default_rng([seed, place])
        distribution = None if plain is None else Distribution.from_dict(plain)
        for number in range(1, size * count + 1):
            drawn = distribution or Distribution.from_dict(_changing(generator))
            scenario = rounded(drawn.sample(generator))
            found.append(Draw(f"{family}-{number:02d}", scenario, int(generator.integers(2**31))))
    for place, victim in enumerate(VICTIMS):
        generator = np.random.default_rng([seed, len(_FAMILIES) + place])
        distribution = Distribution.from_dict(_BESIDE[1])
        for number in range(1, size * _BESIDE[0] + 1):
            scenario = rounded(distribution.sample(generator))
            rtt_ms = scenario.flows[0].rtt_ms  # equal, so that only the algorithms differ
            flows = tuple(
                dataclasses.replace(flow, rtt_ms=rtt_ms, algorithm=victim if index else flow.algorithm)
                for index, flow in enumerate(scenario.flows)
            )
            scenario = dataclasses.replace(scenario, flows=flows)
            found.append(
                Draw(
                    name=f"{victim}-{number:02d}",
                    scenario=scenario,
                    seed=int(generator.integers(2**31)),
                    roles=(0,),
                    victim=victim,
                )
            )
    return found


def alone(draw: Draw) -> Scenario:
    """Return the scenario in which the victim has the link to itself."""
    return dataclasses.replace(draw.scenario, flows=draw.scenario.flows[1:])


def rounded(scenario: Scenario) -> Scenario:
    """Return the scenario with readable values: four significant digits, times to a tenth of a second."""

    def figures(value: float) -> float:
        return float(f"{value:.4g}")

    flows = tuple(
        dataclasses.replace(
            flow,
            rtt_ms=figures(flow.rtt_ms),
            start_s=round(flow.start_s, 1),
            stop_s=None if flow.stop_s is None else round(flow.stop_s, 1),
        )
        for flow in scenario.flows
    )
    return dataclasses.replace(
        scenario,
        rate_mbps=figures(scenario.rate_mbps),
        buffer_bdp=None if scenario.buffer_bdp is None else figures(scenario.buffer_bdp),
        loss=figures(scenario.loss),
        flows=flows,
    )


def _flow(low_ms: float, high_ms: float, **more: Any) -> dict[str, Any]:
    return {"rtt_ms": {"log_uniform": [low_ms, high_ms]}, "jitter_ms": _JITTER_MS, **more}


def _flows(low_ms: float, high_ms: float, **more: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return a flow that stays, one that comes, and one that comes and goes."""
    stays = _flow(low_ms, high_ms, **more)
    comes = {**stays, "start_s": {"uniform": [0.0, 7.0]}}
    return stays, comes, {**comes, "stop_s": {"uniform": [16.0, 27.0]}}


_LINK: Final = {"duration_s": _DURATION_S}
_STAYS, _COMES, _GOES = _flows(10.0, 100.0)
_STAYS_FAR, _COMES_FAR, _GOES_FAR = _flows(5.0, 200.0)
_SHAKES, _JOINS, _ = _flows(8.0, 120.0, jitter_ms={"log_uniform": [1.0, 6.0]})
_GATHERS, _ENTERS, _ = _flows(8.0, 120.0, ack_aggregation_ms={"log_uniform": [2.0, 10.0]})

_FAMILIES: Final[dict[str, tuple[int, Mapping[str, Any] | None]]] = {
    "typical": (
        26,
        {
            **_LINK,
            "rate_mbps": {"log_uniform": [6.0, 100.0]},
            "buffer_bdp": {"log_uniform": [0.5, 8.0]},
            "loss": {"choice": [0.0, 0.0, {"log_uniform": [0.0001, 0.01]}]},
            "flows": {"choice": [[_STAYS], [_STAYS, _COMES], [_STAYS, _COMES, _GOES], [_STAYS, _COMES, _COMES, _GOES]]},
        },
    ),
    "wide": (
        24,
        {
            **_LINK,
            "rate_mbps": {"log_uniform": [2.0, 150.0]},
            "buffer_bdp": {"log_uniform": [0.25, 10.0]},
            "loss": {"choice": [0.0, {"uniform": [0.0, 0.02]}]},
            "flows": {"choice": [[_STAYS_FAR], [_STAYS_FAR, _COMES_FAR], [_STAYS_FAR, _COMES_FAR, _GOES_FAR]]},
        },
    ),
    "crowd": (
        14,
        {
            **_LINK,
            "rate_mbps": {"log_uniform": [8.0, 100.0]},
            "buffer_bdp": {"log_uniform": [0.5, 4.0]},
            "flows": {
                "choice": [
                    [_STAYS_FAR, *[_COMES_FAR] * 4],
                    [_STAYS_FAR, *[_COMES_FAR] * 4, _GOES_FAR],
                    [_STAYS_FAR, *[_COMES_FAR] * 5, _GOES_FAR, _GOES_FAR],
                ]
            },
        },
    ),
    "wireless": (
        16,
        {
            **_LINK,
            "rate_mbps": {"log_uniform": [5.0, 100.0]},
            "buffer_bdp": {"uniform": [1.0, 4.0]},
            "loss": {"choice": [0.0, 0.0, 0.005]},
            "flows": {
                "choice": [
                    [_SHAKES],
                    [_SHAKES, _JOINS],
                    [_SHAKES, _JOINS, _JOINS],
                    [_GATHERS],
                    [_GATHERS, _ENTERS],
                    [_GATHERS, _ENTERS, _ENTERS],
                ]
            },
        },
    ),
    "changing": (18, None),
}
"""How many scenarios of each family, and the distribution that they are drawn from; None is `_changing`."""

_BESIDE: Final[tuple[int, Mapping[str, Any]]] = (
    8,
    {
        **_LINK,
        "rate_mbps": {"log_uniform": [8.0, 80.0]},
        "buffer_bdp": {"log_uniform": [0.5, 8.0]},
        "flows": [_STAYS, _STAYS],
    },
)


def _changing(generator: np.random.Generator) -> dict[str, Any]:
    """Return a scenario whose path changes: its rate, its RTT, or both, as a trace of its own says."""
    seed = int(generator.integers(2**31))
    rate = float(np.exp(generator.uniform(np.log(8.0), np.log(50.0))))
    rtt = float(np.exp(generator.uniform(np.log(15.0), np.log(80.0))))
    # Apart from each other, however they are drawn.
    times = [begin + round(float(generator.uniform(0.0, 5.0)), 1) for begin in (7.0, 14.0, 21.0)]
    factors = [float(factor) for factor in np.exp(generator.uniform(np.log(0.3), np.log(2.0), 3))]
    link = {**_LINK, "rate_mbps": rate, "buffer_bdp": float(generator.uniform(1.0, 4.0))}
    lone = {"rtt_ms": rtt, "jitter_ms": _JITTER_MS}
    kinds: list[dict[str, Any]] = [
        {**link, "rate_schedule": [[t, rate * f] for t, f in zip(times, factors, strict=True)], "flows": [lone]},
        {**link, "rate_schedule": [[times[0], 0.5], [times[0] + 1.0, rate]], "flows": [lone, _COMES]},
        {**link, "rate_trace": {"synthetic": "cellular", "seed": seed, "bin_ms": 100}, "flows": [lone]},
        {**link, "flows": [{**lone, "rtt_schedule": [[t, rtt * f] for t, f in zip(times, factors, strict=True)]}]},
        {**link, "flows": [{**lone, "rtt_trace": {"synthetic": "leo", "seed": seed}}]},
        {
            **link,
            "loss": 0.01,
            "flows": [{**lone, "rtt_schedule": [[times[1], rtt * factors[1]]]}],
            "rate_schedule": [[times[1], rate * factors[0]]],
        },
    ]
    return kinds[int(generator.integers(len(kinds)))]

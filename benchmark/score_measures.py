"""What a score measures in runs of the engine native, in plain types that can leave a confined process as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

import numpy as np

from bbrgym.benchmark.decider import Decider
from bbrgym.benchmark.metrics import measure
from bbrgym.envs.engine import ENGINES, Engine, EngineError, load_entry_point, make_engine
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.sharing import Sharing
from bbrgym.envs.sharing_meter import SharingMeter
from bbrgym.envs.trace import Policy, Trace, simulate

Measured = dict[str, Any]
"""Of a run: `SHARING`, `throughputs_mbps` and `rtts_ms` of its flows; or `error`, why there is nothing."""

SHARING: Final = ("fair_power", "jain", "utilisation", "delay", "retransmission_rate")
"""Columns of `bbrgym.benchmark.run_scores.SCORES` that a score has."""

STEP_MS: Final = 100.0
"""How often a Python callable decides, and the length of the rows of traces."""


def measure_sharing(
    scenarios: Sequence[Scenario], seeds: Sequence[int], warmup: float, decider: Decider | None = None
) -> list[Measured]:
    """Return how the flows of each scenario share its link; one thread.

    Args:
        scenarios: with endless flows.
        seeds: one per scenario.
        warmup: fraction of each run that is not measured.
        decider: steers the agent flows.
    """
    if decider is not None:
        return [_measure_alone(*pair, warmup, decider) for pair in zip(scenarios, seeds, strict=True)]
    count = len(scenarios)
    meter = SharingMeter(scenarios, warmup)
    make_batch = load_entry_point(str(ENGINES["native"].batch_entry_point))
    engines = make_batch(count, max(len(each.flows) for each in scenarios), threads=1)
    errors: dict[int, str] = {}
    with closing(engines):
        engines.begin_resets(range(count), scenarios, seeds, [meter.step_ms(each) for each in scenarios])
        errors |= {index: str(error) for index, error in engines.finish().items()}
        running = np.setdiff1d(np.arange(count), list(errors))
        while len(running):
            engines.begin_steps(running)
            errors |= {index: str(error) for index, error in engines.finish().items()}
            meter.read(engines, running)
            running = running[~engines.is_over[running] & ~np.isin(running, list(errors))]
    throughputs, rtts, rates = meter.throughputs_mbps, meter.rtts_ms, meter.retransmission_rates
    found: list[Measured] = []
    for index, sharing in enumerate(meter.sharings()):
        if index in errors:
            found.append({"error": errors[index]})
            continue
        flows = len(scenarios[index].flows)
        found.append(
            _plain(
                sharing,
                throughputs=throughputs[index, :flows],
                rtts=rtts[index, :flows],
                rates=rates[index, :flows],
            )
        )
    return found


def measure_rows(
    scenarios: Sequence[Scenario], seeds: Sequence[int], warmup: float, decider: Decider | None = None
) -> list[dict[str, Any]]:
    """Return the `rows` and the `trace_hash` of each run, as a benchmark's metrics.json has them; or its `error`."""
    found: list[dict[str, Any]] = []
    for scenario, seed in zip(scenarios, seeds, strict=True):
        try:
            trace = _trace(scenario, seed, decider)
            found.append({"trace_hash": trace.hash, "rows": measure(trace, after_s=warmup * scenario.duration_s)})
        except (EngineError, ValueError) as error:
            found.append({"error": str(error)})
    return found


def measure_trace(
    scenarios: Sequence[Scenario], seeds: Sequence[int], warmup: float, decider: Decider | None = None
) -> list[dict[str, Any]]:
    """Return the arrays of each run's `Trace` as lists: `time_s`, `flows` and `link`; or its `error`.

    `warmup` means nothing here.
    """
    found: list[dict[str, Any]] = []
    for scenario, seed in zip(scenarios, seeds, strict=True):
        try:
            trace = _trace(scenario, seed, decider)
            found.append({name: getattr(trace, name).tolist() for name in ("time_s", "flows", "link")})
        except (EngineError, ValueError) as error:
            found.append({"error": str(error)})
    return found


def measure_policy(scenario: Scenario, seed: int, warmup: float, policy: Policy, step_ms: float) -> Measured:
    """Return what `measure_sharing` does of one run, in which a policy steers the agent flows."""
    with closing(make_engine("native")) as engine:
        return _measure_trace(simulate(scenario, engine, seed=seed, step_ms=step_ms, policy=policy), warmup)


def _measure_alone(scenario: Scenario, seed: int, warmup: float, decider: Decider) -> Measured:
    try:
        return _measure_trace(_trace(scenario, seed, decider), warmup)
    except (EngineError, ValueError) as error:
        return {"error": str(error)}


def _measure_trace(trace: Trace, warmup: float) -> Measured:
    flows = trace.summary(after_s=warmup * trace.scenario.duration_s).flows
    return _plain(
        Sharing.of_trace(trace, warmup),
        throughputs=np.array([flow.throughput_mbps for flow in flows]),
        rtts=np.array([flow.rtt_mean_ms for flow in flows]),
        rates=np.array([flow.retransmission_rate for flow in flows]),
    )


def _trace(scenario: Scenario, seed: int, decider: Decider | None) -> Trace:
    engine: Engine = make_engine("native")
    with closing(engine):
        policy = None if decider is None else decider.policy()
        return simulate(scenario, engine, seed=seed, step_ms=STEP_MS, policy=policy)


def _plain(sharing: Sharing, throughputs: Any, rtts: Any, rates: Any) -> Measured:
    known = rates[~np.isnan(rates)]
    return {
        "fair_power": sharing.fair_power,
        "jain": sharing.jain,
        "utilisation": sharing.utilisation,
        "delay": sharing.delay,
        "retransmission_rate": float(known.mean()) if len(known) else math.nan,
        "throughputs_mbps": throughputs.tolist(),
        "rtts_ms": rtts.tolist(),
    }

"""What a score measures in runs of the engine native, in plain types that can leave a confined process as JSON."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import numpy as np

from bbrgym.benchmark.metrics import measure
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.engine import ENGINES, Engine, EngineError, Rows, load_entry_point, make_engine
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.sharing import Sharing
from bbrgym.envs.sharing_meter import SharingMeter
from bbrgym.envs.trace import Policy, Trace, simulate

Measured = dict[str, Any]
"""Of a run: `SHARING`, `throughputs_mbps` and `rtts_ms` of its flows; or `error`, why there is nothing."""

SHARING: Final = ("fair_power", "jain", "utilisation", "delay", "retransmission_rate")
"""Columns of `bbrgym.benchmark.scores.SCORES` that a score has."""

STEP_MS: Final = 100.0
"""How often a Python callable decides, and the length of the rows of traces."""


def measure_sharing(
    scenarios: Sequence[Scenario], seeds: Sequence[int], warmup: float, function: str | None = None
) -> list[Measured]:
    """Return how the flows of each scenario share its link; one thread.

    Args:
        scenarios: with endless flows.
        seeds: one per scenario.
        warmup: fraction of each run that is not measured.
        function: a Python callable, `module:name`, that steers the agent flows (`policy_of_callable`).
    """
    if function is not None:
        return [_measure_alone(*pair, warmup, function) for pair in zip(scenarios, seeds, strict=True)]
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
    return [
        {"error": errors[index]}
        if index in errors
        else _plain(sharing, *(values[index, : len(scenarios[index].flows)] for values in (throughputs, rtts, rates)))
        for index, sharing in enumerate(meter.sharings())
    ]


def measure_rows(
    scenarios: Sequence[Scenario], seeds: Sequence[int], warmup: float, function: str | None = None
) -> list[dict[str, Any]]:
    """Return the `rows` and the `trace_hash` of each run, as a benchmark's metrics.json has them; or its `error`."""
    found: list[dict[str, Any]] = []
    for scenario, seed in zip(scenarios, seeds, strict=True):
        try:
            trace = _trace(scenario, seed, function)
            found.append({"trace_hash": trace.hash, "rows": measure(trace, after_s=warmup * scenario.duration_s)})
        except (EngineError, ValueError) as error:
            found.append({"error": str(error)})
    return found


def policy_of_callable(function: Callable[[dict[str, float]], Any]) -> Policy:
    """Return a callable as the `policy` of `simulate`.

    Args:
        function: called for every agent flow before every step with the flow's row of the last step, {column: value}
            (`bbrgym.envs.columns`), and `flow` and `time_s`. It returns a pair (cwnd_gain, pacing_gain), or a mapping
            with `cwnd_packets` and `pacing_rate_mbps`.

    Returns:
        The policy. It raises ValueError for anything else that the callable returns.
    """

    def policy(flow: int, rows: Rows) -> tuple[float, float]:
        row = dict(zip(FLOW_COLUMNS, rows.flows[flow].tolist(), strict=True))
        chosen = function({**row, "flow": flow, "time_s": rows.time_s})
        if isinstance(chosen, Mapping):
            # Gains are multiples of what the controller's model has; without a model yet, it keeps its gains.
            gains = chosen["cwnd_packets"] / row["bdp_packets"], chosen["pacing_rate_mbps"] / row["max_bandwidth_mbps"]
            gains = (gains[0], gains[1]) if all(map(math.isfinite, gains)) else (2.0, 1.0)
        else:
            gains = float(chosen[0]), float(chosen[1])
        if not all(math.isfinite(gain) and gain >= 0 for gain in gains):
            raise ValueError(f"flows[{flow}]: the callable chose {chosen!r} at {rows.time_s:g} s")
        return gains

    return policy


def measure_policy(scenario: Scenario, seed: int, warmup: float, policy: Policy, step_ms: float) -> Measured:
    """Return what `measure_sharing` does of one run, in which a policy steers the agent flows."""
    with closing(make_engine("native")) as engine:
        return _measure_trace(simulate(scenario, engine, seed, step_ms, policy), warmup)


def _measure_alone(scenario: Scenario, seed: int, warmup: float, function: str) -> Measured:
    try:
        return _measure_trace(_trace(scenario, seed, function), warmup)
    except (EngineError, ValueError) as error:
        return {"error": str(error)}


def _measure_trace(trace: Trace, warmup: float) -> Measured:
    flows = trace.summary(after_s=warmup * trace.scenario.duration_s).flows
    columns = ("throughput_mbps", "rtt_mean_ms", "retransmission_rate")
    return _plain(
        Sharing.of_trace(trace, warmup), *(np.array([getattr(flow, name) for flow in flows]) for name in columns)
    )


def _trace(scenario: Scenario, seed: int, function: str | None) -> Trace:
    engine: Engine = make_engine("native")
    with closing(engine):
        policy = None if function is None else policy_of_callable(_find(function))
        return simulate(scenario, engine, seed, STEP_MS, policy)


def _find(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"there is no callable {function!r}: {error}") from error
    if not callable(found):
        raise ValueError(f"{function!r} must be a callable, got {found!r}")
    # A class is made anew for each run, so that it can remember.
    decide: Callable[..., Any] = found() if isinstance(found, type) else found
    return decide


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

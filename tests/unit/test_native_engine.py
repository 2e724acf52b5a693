"""The native engine: its scenarios, many at once, and that no packet appears or vanishes; see test_engine.py, too."""

import dataclasses
import hashlib
import math
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from forks import passes_in_fork
from random_scenarios import random_scenario
from traces import SCENARIO, run

from bbrgym import Flow, Scenario, _native, simulate
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.engine_batch import FlowGains
from bbrgym.envs.native.engine import NativeBatch, NativeEngine


@pytest.fixture
def engine() -> Iterator[NativeEngine]:
    engine = NativeEngine()
    yield engine
    engine.close()


def test_a_step_below_all_measure_goes_on(engine: NativeEngine) -> None:
    engine.reset(SCENARIO, 1)
    assert engine.step(1e-300).time_s == 1e-9


# --- the scenario ---------------------------------------------------------------------------------------------------

PLAIN = Scenario(
    rate_mbps=10,
    duration_s=1.0,
    ce_threshold_ms=5.0,
    flows=(Flow("cubic", rtt_ms=20), Flow("bbr", rtt_ms=40, ecn="l4s")),
)
OF_SCENARIO: dict[str, Any] = {
    "rate_mbps": 11,
    "buffer_bdp": 0.5,
    "buffer_packets": 20,
    "duration_s": 0.9,
    "packet_bytes": 800,
    "loss": 0.01,
    "rate_schedule": ((0.5, 5.0),),
    "flows": PLAIN.flows[:1],
    "queue": "codel",
    "codel_target_ms": 1.0,
    "codel_interval_ms": 20.0,
    "pie_target_ms": 3.0,
    "ce_threshold_ms": 3.0,
    "loss_burst_packets": 5.0,
    "loss_burst_ms": 30.0,
    "dualpi2_target_ms": 2.0,
    "dualpi2_step_ms": 4.0,
    "dualpi2_coupling": 4.0,
    "reordering": 0.1,
    "reordering_ms": 7.0,
    "policer_mbps": 5.0,
    "policer_burst_bytes": 5000,
    "second_rate_mbps": 5.0,
    "second_buffer_packets": 3,
    "reverse_rate_mbps": 0.1,
    "reverse_buffer_packets": 3,
}
OF_FLOW: dict[str, Any] = {
    "algorithm": "newreno",
    "rtt_ms": 21,
    "start_s": 0.1,
    "stop_s": 0.5,
    "size_bytes": 50_000,
    "parameters": {"beta": 0.5},
    "jitter_ms": 5.0,
    "ecn": "classic",
    "rtt_schedule": ((0.5, 25.0),),
    "ack_loss": 0.1,
    "ack_aggregation_ms": 4.0,
    "app_rate_mbps": 2.0,
    "on_s": 0.2,
    "off_s": 0.3,
    "on_off": "exponential",
}
# What else a field needs to have an effect.
WITH: dict[str, dict[str, Any]] = {
    "codel_target_ms": {"queue": "codel"},
    "codel_interval_ms": {"queue": "codel"},
    "pie_target_ms": {"queue": "pie"},
    "dualpi2_target_ms": {"queue": "dualpi2"},
    "dualpi2_step_ms": {"queue": "dualpi2"},
    "dualpi2_coupling": {"queue": "dualpi2"},
    "loss_burst_packets": {"loss": 0.02},
    "loss_burst_ms": {"loss": 0.03},
    "reordering_ms": {"reordering": 0.05},
    "policer_burst_bytes": {"policer_mbps": 4.0},
    "second_buffer_packets": {"second_rate_mbps": 4.0},
    "reverse_buffer_packets": {"reverse_rate_mbps": 0.05},
}
WITH_IN_FLOW: dict[str, dict[str, Any]] = {
    "on_s": {"app_rate_mbps": 2.0, "off_s": 0.1},
    "off_s": {"app_rate_mbps": 2.0, "on_s": 0.1},
    "on_off": {"app_rate_mbps": 2.0, "on_s": 0.1, "off_s": 0.1},
}


def test_every_field_has_an_effect(engine: NativeEngine) -> None:
    """Fields are mirrored in C++; a field that is lost on the way would change nothing."""
    assert OF_SCENARIO.keys() == {field.name for field in dataclasses.fields(Scenario)}
    # A policy, a file and commands go with algorithms of their own (test_policy.py, test_controller_file.py,
    # test_linux_commands.py), a path with another link (test_topology.py), a transport with another engine
    # (test_kernel_agent.py).
    of_others = {"policy", "file", "server", "client", "data_from", "path", "transport"}
    assert OF_FLOW.keys() == {field.name for field in dataclasses.fields(Flow)} - of_others
    changed = {
        name: dataclasses.replace(PLAIN, **WITH.get(name, {}), **{name: value}) for name, value in OF_SCENARIO.items()
    }
    changed |= {f"with {name}": dataclasses.replace(PLAIN, **fields) for name, fields in WITH.items()}
    for name in ("codel_interval_ms", "codel_target_ms", "dualpi2_step_ms", "dualpi2_coupling"):
        del changed[f"with {name}"]  # "queue", or the same as "with dualpi2_target_ms"
    for name, value in OF_FLOW.items():
        flow = dataclasses.replace(PLAIN.flows[0], **WITH_IN_FLOW.get(name, {}), **{name: value})
        changed[f"flow.{name}"] = dataclasses.replace(PLAIN, flows=(flow, PLAIN.flows[1]))
    episodes = {name: run(engine, scenario=scenario) for name, scenario in changed.items()}
    episodes["none"] = run(engine, scenario=PLAIN)
    assert len(set(episodes.values())) == len(episodes)


@pytest.mark.parametrize("jitter_ms", [0.0, 4.0])
@pytest.mark.parametrize("algorithm", ["newreno", "cubic", "vegas", "prague", "copa"])
def test_a_paced_window_doubles_in_each_round_trip_of_slow_start(
    engine: NativeEngine, algorithm: str, jitter_ms: float
) -> None:
    """A paced flow fills its window at a few ACKs of a round trip only."""
    parameters = {} if algorithm in ("prague", "copa") else {"is_paced": 1.0}
    flow = Flow(algorithm, rtt_ms=100, parameters=parameters, jitter_ms=jitter_ms)
    scenario = Scenario(rate_mbps=400, buffer_bdp=2, duration_s=0.65, flows=(flow,))
    trace = simulate(scenario, engine, step_ms=100 + jitter_ms / 2)
    cwnd = trace.flows[2:6, 0, FLOW_COLUMNS.index("cwnd_packets")]
    assert (cwnd[1:] / cwnd[:-1]).min() > 1.75


# --- determinism ----------------------------------------------------------------------------------------------------


def test_the_length_of_a_step_decides_nothing(engine: NativeEngine) -> None:
    counts = {}
    for step_ms in (0.7, 10.0, 2000.0):
        trace = simulate(SCENARIO, engine, step_ms=step_ms)
        counts[step_ms] = trace.flows[:, :, : FLOW_COLUMNS.index("send_rate_mbps")].sum(axis=0)[:, 1:]
    np.testing.assert_array_equal(counts[0.7], counts[10.0])
    np.testing.assert_array_equal(counts[0.7], counts[2000.0])


def test_random_runs_have_their_golden_hash(engine: NativeEngine) -> None:
    """A change that is meant to move results replaces it."""
    digest = hashlib.sha256()
    for seed in range(30):
        digest.update(simulate(random_scenario(random.Random(seed)), engine, seed).hash.encode())
    assert digest.hexdigest()[:16] == "319974819350f50f"


@pytest.mark.parametrize(("count", "threads"), [(1, 1), (2, 2), (7, 1), (7, 3), (40, 2), (5, 16)])
def test_many_at_once_are_what_each_is_alone(engine: NativeEngine, count: int, threads: int) -> None:
    """Scenarios with different steps and ends; each continues with another episode when one is over."""
    rng = random.Random(1)
    scenarios = [random_scenario(rng) for _ in range(count)]
    steps_ms = [rng.choice([7.0, 50.0]) for _ in range(count)]
    alone = [run(engine, seed, scenarios[seed], step_ms=steps_ms[seed]) for seed in range(count)]

    engines = NativeBatch(count, max_flows=9, threads=threads)
    engines.begin_resets(range(count), scenarios, range(count), steps_ms)
    played = [b""] * count
    is_done = np.zeros(count, dtype=np.bool_)
    while not is_done.all():
        for index in np.flatnonzero(~is_done):
            flows = engines.flows[index]
            assert np.isnan(flows[len(scenarios[index].flows) :]).all()
            played[index] += engines.time_s[index].tobytes() + engines.link[index].tobytes()
            played[index] += flows[: len(scenarios[index].flows)].tobytes()
        for index in np.flatnonzero(engines.is_over & ~is_done):
            is_done[index] = True
            engines.begin_resets([int(index)], [SCENARIO], [99], [10.0])  # it restarts while others continue
        engines.begin_steps(np.flatnonzero(~engines.is_over) if engines.is_over.any() else None)
        engines.finish()
    assert played == alone
    engines.close()


def test_the_size_of_a_step_that_threads_share_changes_nothing() -> None:
    rows = []
    for packets in (0.0, 20.0, math.inf):  # always, at times, never but in the first step
        batch = _native.Batch(3, 2, 2, packets)
        for index in range(3):
            batch.reset(index, _native.Scenario(SCENARIO.to_dict()), index)
        played = []
        for _ in range(30):
            batch.step(np.full(3, 2 * 10**7))
            played.append(batch.flow_rows.copy())
        rows.append(played)
    np.testing.assert_array_equal(rows[0], rows[1])
    np.testing.assert_array_equal(rows[0], rows[2])


def test_engines_take_more_flows_with_a_reset_of_all() -> None:
    engines = NativeBatch(2, max_flows=1)
    one, two = Scenario(flows=(Flow("agent"),)), Scenario(flows=(Flow("bbr"), Flow("agent")))
    engines.begin_resets([0, 1], [one, one], [1, 1], [10, 10])
    with pytest.raises(ValueError, match="at most 1 flows in a reset of some, got 2"):
        engines.begin_resets([1], [two], [1], [10])
    engines.begin_resets([0, 1], [one, two], [1, 1], [10, 10])
    engines.begin_steps(gains=FlowGains(np.array([0, 1]), np.array([0, 1]), np.ones((2, 2))))
    assert engines.flows.shape[:2] == (2, 2)
    assert engines.time_s.tolist() == [0.01, 0.01]
    engines.close()
    engines.close()
    engines.begin_resets([0, 1], [one, two], [1, 1], [10, 10])
    assert engines.time_s.tolist() == [0.0, 0.0]


def test_a_batch_refuses_what_is_out_of_its_bounds() -> None:
    batch = _native.Batch(2, 1)
    plain = Scenario(flows=(Flow("bbr"),)).to_dict()
    given = _native.Scenario(plain)
    batch.reset(0, given, 1)
    refused: list[tuple[type[Exception], Callable[[], object]]] = [
        (IndexError, lambda: batch.reset(2, given, 1)),
        (ValueError, lambda: batch.reset(0, _native.Scenario(SCENARIO.to_dict()), 1)),
        (ValueError, lambda: batch.reset(0, _native.Scenario(plain | {"flows": []}), 1)),
        (ValueError, lambda: batch.step(np.zeros(3, dtype=np.int64))),
        (IndexError, lambda: batch.set_gains(0, 1, 1.0, 1.0)),
        (IndexError, lambda: batch.set_gains(1, 0, 1.0, 1.0)),
        (ValueError, lambda: batch.set_gains(0, 0, 1.0, 1.0)),
        (ValueError, lambda: batch.set_all_gains(np.zeros(2, int), np.zeros(1, int), np.ones((2, 2)))),
        (ValueError, lambda: batch.set_all_gains(np.zeros(1, int), np.zeros(1, int), np.ones((1, 2)))),
        (IndexError, lambda: batch.set_all_gains(np.array([-1]), np.zeros(1, int), np.ones((2, 1)))),
    ]
    for kind, call in refused:
        with pytest.raises(kind):
            call()
    batch.step(np.full(2, 10**8))  # the second one has no scenario and is skipped
    assert batch.times_s.tolist() == [0.1, 0.0]
    assert np.isnan(batch.flow_rows[1]).all()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_forked_process_has_no_threads_to_wait_for() -> None:
    batch, given = _native.Batch(3, 2, 3), _native.Scenario(SCENARIO.to_dict())
    for index in range(3):
        batch.reset(index, given, 1)

    def check() -> None:
        nonlocal batch
        signal.alarm(10)  # without the fix it waits forever
        batch.step(np.full(3, 10**8))
        assert batch.times_s.tolist() == [0.1] * 3
        del batch

    assert passes_in_fork(check)
    batch.step(np.full(3, 10**8))
    assert batch.times_s.tolist() == [0.1] * 3

"""What every engine must do: all that are registered, with each of their transports.

Tests of an engine in real time cost that time, and hold on a busy machine: they compare no moments. Where this machine
cannot run it they are skipped, with the engine's own reason.
"""

import contextlib
import dataclasses
import inspect
import itertools
import math
import time
from collections.abc import Callable, Iterator
from importlib.resources import as_file, files
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from traces import SCENARIO, as_bytes, flow_column, link_column, run

from bbrgym import Engine, EngineError, Flow, Rows, Scenario, _testing, make_engine, simulate
from bbrgym.baselines.registry import COMPARATORS, controllers
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import ENGINES, EngineUnavailableError, describe_engine, load_entry_point
from bbrgym.envs.engine_batch import make_engine_batch

NAMES = [name for name in ENGINES if name != "fake"]
CASES: dict[str, dict[str, Any]] = {name: {} for name in NAMES} | {"ns3-quic": {"transport": "quic"}}
"""The options of every engine to test; its name comes before the dash."""


def name_of(case: str) -> str:
    return case.partition("-")[0]


def is_real_time(case: str) -> bool:
    return describe_engine(name_of(case), **CASES[case]).is_real_time


simulated = pytest.mark.parametrize("case", [case for case in CASES if not is_real_time(case)], indirect=True)
in_real_time = pytest.mark.parametrize("case", [case for case in CASES if is_real_time(case)], indirect=True)

SHORT = dataclasses.replace(SCENARIO, duration_s=0.3)


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    try:
        with contextlib.closing(make_engine(name_of(request.param), **CASES[request.param])) as engine:
            if is_real_time(request.param):
                engine.reset(SHORT, 1)
    except EngineUnavailableError as error:
        pytest.skip(str(error))
    return str(request.param)


@pytest.fixture
def make(case: str) -> Callable[[], Engine]:
    return lambda: make_engine(name_of(case), **CASES[case])


@pytest.fixture(scope="module")
def engine(case: str) -> Iterator[Engine]:
    """One engine for all tests, so each begins after the episodes of others."""
    with contextlib.closing(make_engine(name_of(case), **CASES[case])) as engine:
        yield engine


# --- an episode -----------------------------------------------------------------------------------------------------


@simulated
def test_an_episode_from_beginning_to_end(engine: Engine) -> None:
    rows = engine.reset(SCENARIO, 1)
    assert (rows.time_s, rows.is_over, rows.is_complete) == (0.0, False, False)
    assert rows.flows.shape == (2, len(FLOW_COLUMNS))
    assert rows.link.shape == (len(LINK_COLUMNS),)
    for column in ("sent_packets", "delivered_packets", "lost_packets", "received_bytes", "rto_count"):
        assert rows.flow(0)[column] == 0
    assert math.isnan(rows.flow(0)["rtt_mean_ms"])
    times = []
    while not rows.is_over:
        before, copied = rows, as_bytes(rows)
        rows = engine.step(300)
        assert engine.rows() is rows
        assert as_bytes(before) == copied  # rows are never written again
        times.append(rows.time_s)
    assert times == pytest.approx([0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.0])
    assert not rows.is_complete
    assert rows.flow(0)["delivered_packets"] > 0
    assert 20 <= rows.flow(0)["rtt_min_ms"] < 200
    assert rows.link_row()["rate_mbps"] == pytest.approx(6)


def test_rows_have_a_value_for_every_measured_column(engine: Engine) -> None:
    engine.reset(SCENARIO, 1)
    rows = engine.step(1000)
    of_controllers = _testing.metrics()
    assert list(FLOW_COLUMNS)[-len(of_controllers) :] == list(of_controllers)
    of_applications = {"app_delay_mean_ms", "completion_time_ms"}
    without = {name for name, value in rows.flow(1).items() if math.isnan(value)} - of_controllers.keys()
    assert without == of_applications
    elsewhere = {column for column in LINK_COLUMNS if column.startswith(("second_", "reverse_"))}
    assert {name for name, value in rows.link_row().items() if math.isnan(value)} == elsewhere


@pytest.mark.parametrize("size_bytes", [1, 1000, 50_001])
def test_finite_flows_complete_the_episode(engine: Engine, size_bytes: int) -> None:
    flows = (Flow("bbr", rtt_ms=20, size_bytes=size_bytes), Flow("cubic", rtt_ms=40, size_bytes=20_000))
    engine.reset(Scenario(duration_s=20, loss=0.05, flows=flows), 1)
    rows = engine.step(20_000)
    assert (rows.is_over, rows.is_complete) == (True, True)
    assert [rows.flow(index)["received_bytes"] for index in (0, 1)] == pytest.approx([size_bytes, 20_000])
    assert rows.time_s < 5


def test_an_application_limits_a_flow(engine: Engine) -> None:
    """50 messages in 8 ms each; the last one is written 392 ms after the handshake."""
    flow = Flow("cubic", rtt_ms=20, app_rate_mbps=1.0, size_bytes=50_000)
    engine.reset(Scenario(duration_s=20, flows=(flow,)), 1)
    rows = engine.step(20_000)
    assert rows.is_complete
    row = rows.flow(0)
    assert row["received_bytes"] == pytest.approx(50_000)
    assert 10 < row["app_delay_mean_ms"] < 30
    assert 20 + 392 + 10 < row["completion_time_ms"] < 20 + 392 + 30


@simulated
def test_a_flow_is_active_from_its_start_to_its_stop_or_last_byte(engine: Engine) -> None:
    flows = (
        Flow("bbr", rtt_ms=20, start_s=0.25, stop_s=1.05),
        Flow("cubic", rtt_ms=20, start_s=2.0),
        Flow("bbr", rtt_ms=20, size_bytes=123_456),
        Flow("bbr", rtt_ms=20, start_s=0.5, stop_s=0.5),
    )
    trace = simulate(Scenario(buffer_bdp=4, duration_s=3, flows=flows), engine)
    active, sent = flow_column(trace, "is_active"), flow_column(trace, "sent_packets")
    assert active[:, 0] == pytest.approx([0, 0, 0.5, *[1] * 7, 0.5, *[0] * 19], abs=1e-9)
    assert active[:, 1] == pytest.approx([*[0] * 20, *[1] * 10], abs=1e-9)
    assert not active[:, 3].any()
    assert not sent[:, 3].any()
    assert sent[:2, 0].sum() == sent[11:, 0].sum() == sent[:20, 1].sum() == 0
    assert sent[3:11, 0].min() > 0
    assert math.isnan(flow_column(trace, "cwnd_packets")[-1, 0])
    assert flow_column(trace, "received_bytes")[:, 2].sum() == pytest.approx(123_456)
    assert active[-1, 2] == 0
    completion_ms = flow_column(trace, "completion_time_ms")[-1, 2]
    assert 100 * active[:, 2].sum() == pytest.approx(completion_ms, abs=1.0 if trace.engine == "linux" else 0.01)


@simulated
def test_the_rate_changes_when_the_schedule_says(engine: Engine) -> None:
    scenario = Scenario(
        rate_mbps=50, duration_s=6, rate_schedule=((0, 5), (2, 20), (4, 2.0)), flows=(Flow("cubic", rtt_ms=20),)
    )
    assert engine.reset(scenario, 1).link_row()["rate_mbps"] == 5
    trace = simulate(scenario, engine, step_ms=500)
    assert link_column(trace, "rate_mbps").tolist() == [5] * 4 + [20] * 4 + [2] * 4
    arrived_mbps = flow_column(trace, "arrived_bytes")[:, 0] * 8e-6 / 0.5
    for first, rate in ((1, 5), (5, 20), (9, 2)):
        of_rate = slice(first, first + 3)
        assert arrived_mbps[of_rate].max() <= rate
        assert arrived_mbps[of_rate].mean() == pytest.approx(rate / 1.04, rel=0.05)
        assert flow_column(trace, "throughput_mbps")[of_rate, 0].mean() == pytest.approx(rate / 1.04, rel=0.05)


@simulated
def test_the_rate_of_a_step_is_its_mean_rate(engine: Engine) -> None:
    """A change at the end of a step is of the next one, so that a summary does not depend on the length of steps."""
    changes = ((0.15, 8.0), (0.3, 2.0), (0.4, 20.0), (0.52, 5.0))
    scenario = Scenario(rate_mbps=4, duration_s=0.6, rate_schedule=changes, flows=(Flow("cubic", rtt_ms=20),))
    engine.reset(scenario, 1)
    rates = [engine.step(100.0).link_row()["rate_mbps"] for _ in range(6)]
    assert rates == pytest.approx([4.0, 6.0, 8.0, 2.0, 20.0, 8.0])
    coarse, fine = (simulate(scenario, engine, seed=1, step_ms=step_ms).summary().link for step_ms in (100.0, 1.0))
    assert coarse.rate_mbps == pytest.approx(fine.rate_mbps) == pytest.approx(8.0)


@simulated
def test_utilisation_is_of_what_the_link_could_send_however_long_steps_are(engine: Engine) -> None:
    """A link that is slow for most of the time is busy then, and may be idle while it is fast."""
    changes = tuple((0.05 * i, rate) for i, rate in enumerate([1.0, 50.0] * 20))
    scenario = Scenario(rate_mbps=1, buffer_bdp=20, duration_s=2, rate_schedule=changes, flows=(Flow("bbr", 20),))
    traces = [simulate(scenario, engine, seed=1, step_ms=step_ms) for step_ms in (10.0, 100.0)]
    fine, coarse = (trace.summary().link.utilisation for trace in traces)
    assert coarse == pytest.approx(fine, abs=0.02)
    wire_mbit = flow_column(traces[0], "arrived_bytes").sum() * 1.04 * 8e-6
    assert coarse == pytest.approx(wire_mbit / (2 * 25.5), abs=0.02)
    assert coarse < 0.9


@simulated
def test_the_longest_queue_of_a_step_is_drained_at_a_rate_of_this_step(engine: Engine) -> None:
    """A change of the rate at the end of a step is of the next one."""
    scenario = Scenario(rate_mbps=20, duration_s=2, rate_schedule=((1.0, 1.0),), flows=(Flow("cubic", rtt_ms=40),))
    trace = simulate(scenario, engine, seed=1, step_ms=100.0)
    before, after = link_column(trace, "queue_max_ms")[9:11]
    assert before < 100 < 300 < after


@pytest.mark.parametrize("case", ["native", "ns3-quic"], indirect=True)
def test_acknowledgements_of_a_flow_that_has_ended_still_count(engine: Engine) -> None:
    """But for ns-3's own TCP (docs/native.md)."""
    flows = (Flow("bbr", rtt_ms=100, size_bytes=10_000), Flow("cubic", rtt_ms=100, start_s=0.5))
    trace = simulate(Scenario(rate_mbps=20, duration_s=2, flows=flows), engine)
    sent, delivered = (flow_column(trace, name)[:, 0].sum() for name in ("sent_packets", "delivered_packets"))
    assert (sent, delivered) == (10, 10)


def test_a_step_longer_than_the_scenario_ends_with_it(engine: Engine) -> None:
    engine.reset(SHORT, 1)
    assert engine.step(1e300).time_s == 0.3


def test_a_policy_drives_a_flow(engine: Engine) -> None:
    scenario = Scenario(duration_s=0.5, flows=(Flow("policy", rtt_ms=20),))
    assert simulate(scenario, engine).summary().flows[0].throughput_mbps > 0.1
    with pytest.raises(FileNotFoundError):
        engine.reset(Scenario(flows=(Flow("policy", policy="/no/such/agent"),)), 1)


# --- determinism ----------------------------------------------------------------------------------------------------


@simulated
def test_equal_seeds_give_equal_bytes_in_any_engine_and_after_any_episode(
    engine: Engine, make: Callable[[], Engine]
) -> None:
    first = run(engine)
    assert run(engine, seed=2) != first
    assert run(engine) == first
    engine.reset(dataclasses.replace(SCENARIO, flows=SCENARIO.flows * 2), 3)
    engine.step(700)
    assert run(engine) == first  # after an abandoned one
    with contextlib.closing(make()) as other:
        assert run(other) == first


@simulated
def test_a_batch_simulates_what_each_engine_does(case: str, engine: Engine) -> None:
    three = dataclasses.replace(SCENARIO, flows=(*SCENARIO.flows, Flow("cubic")))
    alone = {
        seed: simulate(scenario, engine, seed, step_ms)
        for seed, scenario, step_ms in ((1, SCENARIO, 100.0), (2, three, 250.0), (3, SCENARIO, 200.0))
    }
    with contextlib.closing(make_engine_batch(name_of(case), 2, 3, CASES[case])) as batch:
        batch.begin_resets([0, 1], [SCENARIO, three], [1, 2], [100.0, 250.0])
        batch.finish()
        assert batch.time_s.tolist() == [0.0, 0.0]
        for step in range(8):
            batch.begin_steps()
            batch.finish()
            for index, seed in enumerate((1, 2)):
                flows = batch.flows[index]
                np.testing.assert_array_equal(flows[: 2 + index], alone[seed].flows[step])
                np.testing.assert_array_equal(batch.link[index], alone[seed].link[step])
                assert np.isnan(flows[2 + index :]).all()
        assert batch.is_over.tolist() == [False, True]
        batch.begin_resets([1], [SCENARIO], [3], [200.0])  # while the other one waits
        batch.finish()
        for step in range(8, 12):
            batch.begin_steps()
            batch.finish()
            np.testing.assert_array_equal(batch.flows[0, :2], alone[1].flows[step])
            np.testing.assert_array_equal(batch.flows[1, :2], alone[3].flows[step - 8])


# --- steering -------------------------------------------------------------------------------------------------------


@simulated
def test_gains_are_the_controllers_own_until_steered(engine: Engine) -> None:
    unsteered = run(engine)
    assert run(engine, gains=(2.0, 1.0)) == unsteered  # the defaults of `agent`
    assert run(engine, gains=(1.0, 0.5)) != unsteered
    flows = (Flow("agent", rtt_ms=20, parameters={"cwnd_gain": 1.0, "pacing_gain": 0.5}), SCENARIO.flows[1])
    configured = dataclasses.replace(SCENARIO, flows=flows)
    assert run(engine, scenario=configured) == run(engine, gains=(1.0, 0.5))


@simulated
@pytest.mark.parametrize("start_s", [0.0, 0.7], ids=["running", "not started"])
def test_gains_take_effect_in_the_next_step_and_hold_until_changed(engine: Engine, start_s: float) -> None:
    engine.reset(Scenario(duration_s=4.0, flows=(Flow("agent", rtt_ms=20, start_s=start_s), Flow("bbr"))), 1)
    engine.steer(0, 1.0, 0.5)
    for _ in range(25):
        rows = engine.step(100)
    assert (rows.flow(0)["cwnd_gain"], rows.flow(0)["pacing_gain"]) == (1.0, 0.5)
    engine.steer(0, 1.5, 0.9)
    rows = engine.step(100)
    assert (rows.flow(0)["cwnd_gain"], rows.flow(0)["pacing_gain"]) == (1.5, 0.9)


# --- misuse ---------------------------------------------------------------------------------------------------------


def test_calls_out_of_order_are_refused_and_change_nothing(case: str, make: Callable[[], Engine]) -> None:
    engine = make()
    too_early: list[Callable[[], object]] = [
        engine.rows,
        engine.finish_reset,
        engine.finish_step,
        lambda: engine.step(1),
        lambda: engine.steer(0, 1, 1),
    ]
    for call in too_early:
        with pytest.raises(RuntimeError, match=r"reset|begin_step"):
            call()
    engine.begin_reset(SHORT, 1)
    begin: list[Callable[[], object]] = [lambda: engine.begin_reset(SHORT, 2), lambda: engine.begin_step(1)]
    for call in (*begin, engine.finish_step):
        with pytest.raises(RuntimeError, match="while a reset is pending"):
            call()
    engine.finish_reset()
    engine.begin_step(1)
    for call in (*begin, engine.finish_reset):
        with pytest.raises(RuntimeError, match="while a step is pending"):
            call()
    assert is_at(0.001, engine.finish_step(), case)
    engine.step(5000)
    with pytest.raises(RuntimeError, match=r"after the end of the episode at 0.3 s: reset first"):
        engine.step(1)
    engine.close()
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        engine.reset(SCENARIO, 1)


def is_at(time_s: float, rows: Rows, case: str) -> bool:
    """Whether a step ended at this time; real time may have missed it, by a whole number of steps."""
    return rows.time_s == pytest.approx(time_s) or (is_real_time(case) and rows.time_s > time_s)


def test_bad_arguments_are_refused_by_value(case: str, engine: Engine) -> None:
    for seed in (-1, 2**64, 1.5, "1"):
        with pytest.raises(ValueError, match=r"seed must be an integer in \[0, 2\*\*64\), got"):
            engine.begin_reset(SCENARIO, seed)  # type: ignore[arg-type]  # that is the point
    engine.reset(SCENARIO, 2**64 - 1)
    with pytest.raises(ValueError, match=r"flow must be an agent's \(0\), got 1"):
        engine.steer(1, 1, 1)
    for gain in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"gains must be finite numbers > 0, got \(1.0, "):
            engine.steer(0, 1.0, gain)
    for duration_ms in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="duration_ms must be a finite number > 0, got"):
            engine.step(duration_ms)
    assert is_at(0.001, engine.step(1), case)


@pytest.mark.parametrize("of_flow", [False, True], ids=["scenario", "flow"])
def test_a_field_that_no_engine_knows_is_refused(engine: Engine, of_flow: bool) -> None:
    class Coloured(Scenario):
        def to_dict(self) -> dict[str, Any]:
            described = super().to_dict()
            (described["flows"][0] if of_flow else described)["colour"] = "red"
            return described

    with pytest.raises((ValueError, EngineError), match="a field that the engine does not know"):
        engine.reset(Coloured(flows=(Flow("bbr"),)), 1)
    assert engine.reset(SCENARIO, 1).time_s == 0.0


def test_numpy_numbers_are_numbers(engine: Engine) -> None:
    flow = Flow("bbr", rtt_ms=np.float32(20), size_bytes=np.int64(10**9))  # type: ignore[arg-type]
    scenario = Scenario(rate_mbps=np.float64(10), duration_s=np.int64(1), flows=(flow,))  # type: ignore[arg-type]
    assert engine.reset(scenario, np.int64(1)).time_s == 0.0  # type: ignore[arg-type]
    assert engine.step(np.float32(2000)).time_s == 1.0  # type: ignore[arg-type]


def test_comparators_run_or_are_refused_by_name(case: str, engine: Engine) -> None:
    description = describe_engine(name_of(case), **CASES[case])
    assert set(description.comparators) <= set(COMPARATORS)
    for algorithm in COMPARATORS:
        scenario = Scenario(duration_s=0.1, flows=(Flow("bbr"), Flow(algorithm)))
        if algorithm in description.comparators:
            assert engine.reset(scenario, 1).time_s == 0.0
        else:
            with pytest.raises(ValueError, match=rf"flows\[1\]: .* has no algorithm '{algorithm}'.*known: agent, bbr,"):
                engine.reset(scenario, 1)
    assert run(engine, scenario=SHORT)  # the next one is sound


# --- real time ------------------------------------------------------------------------------------------------------


@in_real_time
def test_an_episode_takes_its_time(engine: Engine) -> None:
    began = time.monotonic()
    rows = engine.reset(SHORT, 1)
    assert (rows.time_s, rows.is_over, rows.flow(0)["sent_packets"]) == (0.0, False, 0.0)
    times = []
    while not rows.is_over:
        rows = engine.step(50)
        assert time.monotonic() - began >= rows.time_s
        times.append(rows.time_s)
    assert (np.diff([0.0, *times]) > 0.0499).all()
    assert times[-1] == 0.3
    assert not rows.is_complete


@in_real_time
def test_a_late_step_covers_what_it_has_missed(engine: Engine) -> None:
    flows = (Flow("bbr", rtt_ms=1, size_bytes=100_500), Flow("cubic", rtt_ms=1, size_bytes=50_000))
    rows = engine.reset(Scenario(rate_mbps=20, duration_s=30, flows=flows), 1)
    received = np.zeros(2)
    for pause_s in itertools.cycle((0.0, 0.004, 0.012)):
        if rows.is_over:
            break
        time.sleep(pause_s)
        before = rows.time_s
        rows = engine.step(5)
        steps = (rows.time_s - before) / 0.005
        assert steps >= pause_s / 0.005
        assert rows.is_complete or steps == pytest.approx(round(steps))
        received += rows.flows[:, FLOW_COLUMNS.index("received_bytes")]
    assert received.tolist() == [100_500, 50_000]


@in_real_time
def test_engines_of_a_batch_run_at_once_and_do_not_meet(case: str) -> None:
    slow = dataclasses.replace(SHORT, rate_mbps=0.2)
    began = time.monotonic()
    with contextlib.closing(make_engine_batch(name_of(case), 2, 2, CASES[case])) as batch:
        batch.begin_resets([0, 1], [SHORT, slow], [1, 2], [100.0, 100.0])
        assert batch.finish() == {}
        received = np.zeros(2)
        while not batch.is_over.all():
            batch.begin_steps(np.flatnonzero(~batch.is_over))
            assert batch.finish() == {}
            received += batch.flows[:, :, FLOW_COLUMNS.index("received_bytes")].sum(axis=1)
    assert 0 < received[1] <= 0.2e6 / 8 * (time.monotonic() - began)
    assert batch.link[:, LINK_COLUMNS.index("rate_mbps")].tolist() == [6, 0.2]


@in_real_time
def test_gains_take_effect_and_hold(engine: Engine) -> None:
    engine.reset(Scenario(rate_mbps=6, duration_s=60, flows=(Flow("agent", rtt_ms=20),)), 1)
    for gains in ((1.0, 0.5), (1.5, 0.9)):
        engine.steer(0, *gains)
        rows = engine.step(50)
        while (rows.flow(0)["cwnd_gain"], rows.flow(0)["pacing_gain"]) != gains:  # once it is in ProbeBW
            assert not rows.is_over
            rows = engine.step(50)
        rows = engine.step(50)
        assert (rows.flow(0)["cwnd_gain"], rows.flow(0)["pacing_gain"]) == gains


# --- the registration -----------------------------------------------------------------------------------------------


def test_what_an_engine_says_of_itself(case: str, engine: Engine) -> None:
    description = describe_engine(name_of(case), **CASES[case])
    assert engine.description == description
    assert description.title
    assert description.options.items() >= CASES[case].items()
    assert set(description.comparators).isdisjoint(controllers())


@pytest.mark.parametrize("name", NAMES)
def test_the_configuration_has_every_option_with_its_default(name: str) -> None:
    with as_file(files("bbrgym.conf") / f"engine/{name}.yaml") as file:
        config: Any = OmegaConf.to_container(OmegaConf.load(file))
    parameters = inspect.signature(load_entry_point(ENGINES[name].entry_point)).parameters
    assert config == {"name": name} | {option: parameter.default for option, parameter in parameters.items()}


def test_unknown_engines_and_options_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"unknown engine 'ns2' .*; known: native, ns3, linux"):
        make_engine("ns2")
    with pytest.raises(ValueError, match=r"engine 'native': unknown key 'thread' .*; known: threads"):
        make_engine("native", thread=1)
    with pytest.raises(ValueError, match=r"unknown transport 'sctp'.*; known: tcp, quic"):
        describe_engine("ns3", transport="sctp")

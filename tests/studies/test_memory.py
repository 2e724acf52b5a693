"""The study of what a memory knows: its probes, what they are compared with, and its page for any policy."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process import ExecutorInThisProcess
from policies import make_agent
from rich.console import Console

from bbrgym.baselines.policy_file import REFERENCE
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.scenario import Flow, Scenario
from studies import __main__ as command
from studies import memory, study
from studies.memory import BASE_RTT, FLOWS, LOSS, QUANTITIES, RATE, SPREAD, Probe, Samples, Timeline
from studies.study import Study

SCENARIO = Scenario(
    rate_mbps=8.0,
    rate_schedule=((3.0, 4.0),),
    loss=0.01,
    duration_s=6.0,
    flows=(
        Flow("agent", rtt_ms=30.0, start_s=2.0, jitter_ms=2.0, rtt_schedule=((4.0, 50.0),)),
        Flow("agent", rtt_ms=20.0, start_s=0.35),
        Flow("cubic", rtt_ms=20.0, start_s=2.0),
    ),
)


def test_an_episode_has_what_was_true_when_the_policy_remembered_it() -> None:
    agent = make_agent(widths=(), lstm=(3,), observation={"features": ["log_min_rtt", "log_bdp"]})
    (run,) = memory.episodes(agent, SCENARIO, seed=1, count=1)
    steps = len(run.time_s)
    assert run.memory.shape == (steps, 2, 6)
    assert run.packets.shape == (steps, 2)
    assert run.time_s[0] == pytest.approx(0.1)
    truth = {quantity: quantity.plain(run.truth[..., place]) for place, quantity in enumerate(QUANTITIES)}

    def around(quantity: memory.Quantity, time_s: float, flow: int = 0) -> list[float]:
        """Return the value just before and just after a time."""
        after = int(np.searchsorted(run.time_s, time_s + 0.05))
        return truth[quantity][[after - 1, after], flow].round(3).tolist()

    assert around(RATE, 3.0) == [8.0, 4.0]  # the mean of the step
    assert around(FLOWS, 2.0) == [1.0, 3.0]
    assert around(SPREAD, 4.0 - 0.1) == [2.0, 22.0]
    assert around(BASE_RTT, 5.0 - 0.1) == [30.0, 50.0]
    assert set(truth[BASE_RTT][:, 1].round(3)) == {20.0}
    assert truth[LOSS][0, 0] == pytest.approx(1.0)
    # Observation and memory are of the same time: the second flow begins at 0.35 s, and has an ACK by 0.4 s.
    assert run.time_s[(run.observations[:, 1] != run.observations[0, 1]).any(axis=1).argmax()] == pytest.approx(0.4)
    before = run.memory[run.time_s < 0.35, 1]
    resting = agent.states(np.tile(run.observations[0, 1], (len(before) + 2, 1, 1)))[1:, 0]
    np.testing.assert_array_equal(before, memory.bounded(resting, agent.stored.network)[:-1])
    assert (run.memory[len(before), 1] != memory.bounded(resting, agent.stored.network)[-1]).any()
    assert run.is_settled.sum(axis=0).tolist() == pytest.approx([10, 26], abs=1)


def test_a_memory_is_what_output_gates_see() -> None:
    network = make_agent(widths=(), lstm=(2, 1)).network
    states = np.full((1, 6), 3.0, np.float32)
    expected = [3.0, 3.0, math.tanh(3.0), math.tanh(3.0), 3.0, math.tanh(3.0)]
    assert memory.bounded(states, network)[0] == pytest.approx(expected)
    plain = make_agent().network
    assert memory.bounded(np.zeros((4, 0), np.float32), plain).shape == (4, 0)


def test_the_lowest_and_highest_value_of_a_schedule_within_a_window() -> None:
    schedule = ((1.0, 5.0), (1.5, 2.0), (4.0, 7.0))
    lowest, highest = memory.within(3.0, schedule, np.array([0.5, 1.0, 1.7, 3.0, 4.0, 9.0]), 1.0)
    assert lowest.tolist() == [3.0, 3.0, 2.0, 2.0, 2.0, 7.0]
    assert highest.tolist() == [3.0, 5.0, 5.0, 2.0, 7.0, 7.0]


def samples(seed: int, noise: float) -> Samples:
    """Make a truth that is linear in two of five inputs, in forty scenarios of different lengths."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, 50, 40)
    scenarios = np.repeat(np.arange(40), lengths)
    inputs = rng.normal(size=(len(scenarios), 5)).astype(np.float32)
    linear = inputs[:, 0] - 2.0 * inputs[:, 1] + 7.0
    truth = np.stack([linear + noise * rng.normal(size=len(scenarios)), linear], axis=1)
    return Samples({"observation": inputs, "nothing": np.zeros_like(inputs)}, truth, scenarios)


def test_r2_is_that_of_scenarios_that_fitted_nothing() -> None:
    fits, judges = samples(1, noise=1.0), samples(2, noise=1.0)
    assert np.bincount(fits.scenarios, fits.weights) == pytest.approx(np.full(40, 1 / 40))
    (r2, low, high), exact = memory.explained(
        Probe.fit(fits.inputs["observation"], fits.truth, fits.weights), "observation", judges
    )
    assert r2 == pytest.approx(5 / 6, abs=0.03)  # variances: 1 + 4 of 1 + 4 + 1
    assert low < r2 < high
    assert exact == pytest.approx((1.0, 1.0, 1.0), abs=1e-3)
    (nothing, _, _), _ = memory.explained(
        Probe.fit(fits.inputs["nothing"], fits.truth, fits.weights), "nothing", judges
    )
    assert nothing == pytest.approx(0.0, abs=0.02)


def test_half_way_is_counted_from_the_event_on() -> None:
    time_s = np.arange(1, 401) / 10
    truth = np.where(time_s > memory.EVENT_S, 4.0, 2.0)
    early = np.where(time_s > 12.0, 3.0, 2.0)  # the mean before the event is 2.6
    late = np.where(time_s > 20.0, 3.5, 2.0)
    row = {"time_s": time_s, "truth": truth, "late": late, "early": early, "never": np.full(400, 2.0)}
    timeline = Timeline("a flow of CUBIC joins", row)
    assert timeline.half_way_s("late") == pytest.approx(5.0 + 2 / 3, abs=0.11)  # 3 of the way from 2 to 3.5
    assert math.isnan(timeline.half_way_s("never"))
    assert math.isnan(timeline.half_way_s("early"))
    assert timeline.means("truth") == pytest.approx([2.0, 4.0, 4.0])


class _Closing(ExecutorInThisProcess):
    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few, short scenarios."""
    monkeypatch.setattr(study, "ProcessExecutor", lambda workers: _Closing())
    monkeypatch.setattr(memory, "COUNT", 6)
    flows = [{"algorithm": "agent", "rtt_ms": {"log_uniform": [5, 50]}, "jitter_ms": {"uniform": [0, 20]}}]
    drawn = Distribution.from_dict(
        {"rate_mbps": {"log_uniform": [2, 10]}, "loss": {"choice": [0.0, 0.01]}, "duration_s": 5, "flows": flows}
    )
    monkeypatch.setattr(memory, "_distribution", lambda: drawn)
    two = dict(list(memory.moments().items())[1:3])
    monkeypatch.setattr(memory, "moments", lambda: two)
    memory._probes.cache_clear()
    memory._agent.cache_clear()


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("lstm", [(), (4,)])
def test_the_page_of_any_policy(few: None, tmp_path: Path, lstm: tuple[int, ...]) -> None:
    agent = make_agent(widths=(), lstm=lstm, scale=0.2, observation={"features": ["log_bdp", "log_rtt_spread"]})
    agent.save(tmp_path / "agent")
    made = Study("memory", pages=tmp_path, agent=tmp_path / "agent")
    assert len(made.left()) == 1 + len(memory.moments())
    made.measure(Console(quiet=True))
    assert made.left() == []
    made.write()
    page = made.page.read_text()
    assert ("| the memory adds |" in page) == bool(lstm)
    assert ("It has no memory" in page) == (not lstm)
    assert agent.content_hash[:12] in page
    assert all(f"| {name} |" in page for name in memory.moments())
    assert (tmp_path / "memory" / "moments.png").is_file()
    slower = dataclasses.replace(agent, spec=dataclasses.replace(agent.spec, step_ms=200.0))
    slower.save(tmp_path / "slower")
    memory._agent.cache_clear()
    assert len(Study("memory", pages=tmp_path, agent=tmp_path / "slower").left()) == len(made.jobs)


def test_the_study_is_of_the_shipped_policy_unless_another_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Study("memory").measured == memory.of_agent(REFERENCE)
    make_agent().save(tmp_path / "run" / "best")
    of_run = Study("memory", agent=tmp_path / "run")
    assert of_run.measured == memory.of_agent(tmp_path / "run" / "best")
    assert of_run.page == Path("runs/studies/memory.md")
    refused: dict[tuple[str, ...], str] = {
        ("queues", "--agent", str(REFERENCE)): "'queues' is not about one agent",
        ("pacing", "--agent", str(REFERENCE)): "'pacing' is not about one agent",
        ("memory", "--agent", str(tmp_path / "none")): "no trained agent in",
        ("all", "--agent", str(REFERENCE)): "--agent is for studies that are named",
    }
    for arguments, message in refused.items():
        with pytest.raises(SystemExit):
            command.main(arguments)
        assert message in capsys.readouterr().err


def test_moments_happen_when_the_page_says() -> None:
    for moment in memory.moments().values():
        scenario: Any = moment.scenario
        changes = [flow.start_s for flow in scenario.flows[1:]]
        changes += [time_s for flow in scenario.flows for time_s, _ in flow.rtt_schedule[:1]]
        assert set(changes) == {memory.EVENT_S}
        assert moment.quantity in QUANTITIES

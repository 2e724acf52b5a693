"""Native agrees with ns-3 within bounds, and the command that measures it compares what it says."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
from marks import needs_ns3

from bbrgym import Flow, Scenario, Trace, simulate
from bbrgym.baselines import registry
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.metrics import measure
from studies import agreement

SHARE, UTILISATION, QUEUE, RETRANSMISSIONS, JAIN = agreement.METRICS
SCENARIO = Scenario(rate_mbps=10, flows=(Flow("bbr", 40), Flow("cubic", 20)))


# Both engines


@needs_ns3
@pytest.mark.parametrize(
    ("scenario", "bounds"),
    [
        pytest.param(
            Scenario(rate_mbps=20, buffer_bdp=5, duration_s=8, flows=(Flow("bbr", 10), Flow("bbr", 50))),
            {"share of a flow": 0.03, "utilisation": 0.002, "queueing delay": 0.12, "retransmission rate": 0.0},
            id="bbr flows of 10 and 50 ms",
        ),
        pytest.param(
            Scenario(rate_mbps=10, buffer_bdp=1, duration_s=15, flows=(Flow("cubic", 30),)),
            {"utilisation": 0.002, "queueing delay": 0.03, "retransmission rate": 0.02},
            id="cubic fills its buffer",
        ),
        pytest.param(
            Scenario(rate_mbps=10, buffer_bdp=2, duration_s=20, loss=0.01, flows=(Flow("newreno", 40),)),
            {"utilisation": 0.08, "retransmission rate": 0.1},
            id="newreno, random losses",
        ),
    ],
)
def test_native_agrees_with_ns3(scenario: Scenario, bounds: dict[str, float]) -> None:
    ns3, native = ([_figures(simulate(scenario, engine, seed=1))] for engine in ("ns3", "native"))
    found = {d.metric.title: d for d in (agreement.difference(m, scenario, ns3, native) for m in agreement.METRICS)}
    for title, bound in bounds.items():
        assert found[title].size <= bound, found[title]


# The grid


def test_the_grid_is_what_was_run() -> None:
    """A changed draw makes every run of ns-3 worthless: it shows here first."""
    scenarios = agreement.grid()
    assert len(scenarios) == agreement.COUNT >= 60
    assert scenarios == agreement.grid()
    assert (scenarios["g00"].rate_mbps, scenarios["g00"].buffer_bdp, len(scenarios["g00"].flows)) == (29.7, 6.0, 4)
    assert scenarios["g63"].flows[0].algorithm == "ebcc"
    assert set(agreement.ALGORITHMS) <= set(registry.controllers())


# Differences


def test_shares_differ_absolutely_and_in_the_worst_flow() -> None:
    found = agreement.difference(SHARE, SCENARIO, [_run(shares=(0.2, 0.8))], [_run(shares=(0.3, 0.7))])
    assert found.size == pytest.approx(0.1)
    assert found.is_above_limit
    assert math.isnan(found.chance)


@pytest.mark.parametrize(
    ("metric", "rate_mbps", "reference", "native", "size"),
    [
        pytest.param(UTILISATION, 10, {"utilisation": 0.8}, {"utilisation": 0.9}, 0.125, id="relative"),
        # Small values are not divided by: 0.1 instead of 0.05 % is no difference of 100 %.
        pytest.param(
            RETRANSMISSIONS, 10, {"retransmission_rate": 5e-4}, {"retransmission_rate": 1e-3}, 0.1, id="0.5 %"
        ),
        pytest.param(QUEUE, 10, {"queue_ms": 0.4}, {"queue_ms": 0.8}, 0.4 / 2.0, id="a twentieth of 40 ms"),
        pytest.param(QUEUE, 1, {"queue_ms": 0.4}, {"queue_ms": 0.8}, 0.4 / 8.32, id="a packet"),
    ],
)
def test_other_differences_are_relative_to_the_reference(
    metric: agreement.Metric, rate_mbps: float, reference: dict[str, float], native: dict[str, float], size: float
) -> None:
    scenario = dataclasses.replace(SCENARIO, rate_mbps=rate_mbps)
    found = agreement.difference(metric, scenario, [_run(**reference)], [_run(**native)])
    assert found.size == pytest.approx(size)
    assert found.is_above_limit == (size > 0.15)


@pytest.mark.parametrize(("hashes", "different"), [("ab", 2), ("aaa", 1)])
def test_chance_is_two_standard_errors(hashes: str, different: int) -> None:
    """A seed that changes nothing makes nothing more certain."""
    near = [_run(queue_ms=value) for value in (18.0, 20.0, 22.0)]  # standard deviation 2
    runs = [_run(queue_ms=20.0, trace_hash=name) for name in hashes]
    found = agreement.difference(QUEUE, SCENARIO, reference=runs, native=runs, neighbours=near)
    assert found.chance == pytest.approx(2 * 2.0 * math.sqrt(1 / different + 1 / 3) / 20.0)
    assert found.is_chance


def test_chance_is_judged_by_the_neighbours() -> None:
    """One run of a chaotic scenario is a draw: that it is far from ns-3 says less than that many are."""
    near = [_run(queue_ms=value) for value in (18.0, 20.0, 22.0)]
    found = agreement.difference(
        QUEUE, SCENARIO, reference=[_run(queue_ms=21.0)], native=[_run(queue_ms=40.0)], neighbours=near
    )
    assert found.from_neighbours == pytest.approx(1 / 21)
    assert (found.is_above_limit, found.is_chance) == (True, True)
    found = agreement.difference(
        QUEUE, SCENARIO, reference=[_run(queue_ms=30.0)], native=[_run(queue_ms=20.0)], neighbours=near
    )
    assert not found.is_chance


# Causes


@pytest.mark.parametrize(
    ("chance", "over_udp_ms", "expected"),
    [(40.0, 15.0, "chance"), (0.0, 19.0, "transport"), (0.0, 11.0, "network"), (0.0, 40.0, "not explained")],
)
def test_a_cause_is_the_first_rule_that_fits(chance: float, over_udp_ms: float, expected: str) -> None:
    runs = _queues(ns3=[10.0], over_udp=[over_udp_ms], native=[20.0])
    one = agreement.Compared("g00", SCENARIO, runs, _queues(native=[20.0 - chance / 2, 20.0 + chance / 2])["native"])
    found = one.difference(QUEUE, "ns3", "native")
    assert found.is_above_limit
    assert agreement.cause(one, found) == expected


@pytest.mark.parametrize(
    ("ns3", "over_udp", "native", "expected"),
    [
        ((10.0, 30.0), (19.0, 21.0), (20.0, 20.0), "chance"),
        ((9.9, 10.1), (19.9, 20.1), (20.0, 20.2), "transport"),
        ((9.9, 10.1), (9.9, 10.1), (20.0, 20.2), "network"),
        ((9.9, 10.1), (14.9, 15.1), (20.0, 20.2), "not explained"),
    ],
)
def test_neighbours_in_every_engine_tell_what_the_seeds_do_not(
    ns3: Sequence[float], over_udp: Sequence[float], native: Sequence[float], expected: str
) -> None:
    near = _queues(ns3=ns3, over_udp=over_udp, native=native)
    one = agreement.Compared("g00", SCENARIO, _queues(ns3=[10.0], over_udp=[15.0], native=[20.0]), near["native"])
    found = one.difference(QUEUE, "ns3", "native")
    assert agreement.cause(one, found) == "not explained"
    assert agreement.cause(dataclasses.replace(one, others_neighbours=near), found) == expected


def test_what_is_sent_again_without_a_loss() -> None:
    assert _run(retransmission_rate=0.05, loss_rate=0.02).unnecessary_rate == pytest.approx(0.03)
    assert _run(retransmission_rate=0.02, loss_rate=0.021).unnecessary_rate == 0, "the last losses are not repaired yet"


# The study


SHORT = {
    "g00": Scenario(rate_mbps=5, buffer_bdp=1, duration_s=3, loss=0.01, flows=(Flow("bbr", 20), Flow("cubic", 20)))
}


@pytest.fixture
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native in the place of ns-3, in one short scenario."""
    for engine in agreement.ENGINES:
        monkeypatch.setitem(agreement.ENGINES, engine, {"name": "native"})
    monkeypatch.setattr(agreement, "SEEDS", (1, 2))
    monkeypatch.setattr(agreement, "NEIGHBOURS", (1000, 1001))
    monkeypatch.setattr(agreement, "_grid", lambda: SHORT)


def _measured(jobs: Sequence[agreement.GridRun]) -> dict[str, Rows]:
    return {job.name: agreement.work(job) for job in jobs}


@pytest.mark.usefixtures("_stand_in")
def test_an_engine_agrees_with_itself() -> None:
    results = _measured(agreement.jobs())
    (one,) = agreement.compare(results)
    assert all(d.size == 0 for d in one.differences("ns3"))
    assert all(d.chance >= 0 for d in one.differences("ns3"))
    assert one.runs["ns3"][0].trace_hash != one.runs["ns3"][1].trace_hash
    shown = agreement.view(results, lambda name, draw: str(draw() and name))
    assert not shown["is_older"]
    assert shown["above"] == 0


@pytest.mark.usefixtures("_stand_in")
def test_neighbours_run_in_other_engines_only_where_no_cause_is_known() -> None:
    results = _measured(agreement.jobs())
    assert agreement.further(results) == []
    for job in agreement.jobs():
        if not job.is_neighbour and job.engine != agreement.NATIVE:
            results[job.name][0]["queue_ms"] *= 10 if job.engine == "ns3" else 5
    further = agreement.further(results)
    assert {(job.engine, job.seed) for job in further} == {(e, s) for e in agreement.REFERENCES for s in (1000, 1001)}
    (settled,) = agreement.compare(results | _measured(further))
    assert settled.others_neighbours == dict.fromkeys(("ns3", "ns3-quic"), settled.neighbours), "native in ns-3's place"
    (unsettled,) = agreement.compare(results | _measured(further[:-1]))
    assert unsettled.others_neighbours == {}, "not all of them are measured"


def test_a_page_is_of_older_code_until_every_scenario_is_measured() -> None:
    shown = agreement.view({}, lambda name, draw: name)
    assert shown["is_older"]
    assert agreement.Summary.from_dict(dataclasses.asdict(shown["summary"])) == shown["summary"]  # type: ignore[call-overload]


def test_the_hash_of_a_run_is_of_what_decides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = agreement.GridRun("g00", "native", 1)
    changes: list[dict[str, Any]] = [{"seed": 2}, {"engine": "ns3"}, {"scenario_name": "g01"}]
    others = [dataclasses.replace(run, **change) for change in changes]
    before = run.code
    assert len({before, *(other.code for other in others)}) == 4
    monkeypatch.setattr(agreement, "WARMUP", 0.5)
    assert run.code != before


def test_a_table_counts_what_is_above_the_limit_by_cause() -> None:
    near = _queues(native=[19.0, 21.0])["native"]
    ones = [
        agreement.Compared("g00", SCENARIO, _queues(ns3=[10.0], over_udp=[over_udp_ms], native=[20.0]), near)
        for over_udp_ms in (19.0, 11.0, 11.0)
    ]
    assert agreement.summarise(ones).causes["queueing delay"] == {"network": 2, "transport": 1}


def _figures(trace: Trace) -> agreement.Figures:
    rows = measure(trace, after_s=agreement.WARMUP * trace.scenario.duration_s)
    return agreement.Figures.of_rows([row | {"trace_hash": trace.hash} for row in rows])


def _run(**values: Any) -> agreement.Figures:
    usual: dict[str, Any] = {
        "shares": (0.5, 0.5),
        "utilisation": 1.0,
        "queue_ms": 20.0,
        "retransmission_rate": 0.0,
        "jain": 1.0,
    }
    return agreement.Figures(**(usual | values))


def _queues(**queues_ms: Sequence[float]) -> dict[str, list[agreement.Figures]]:
    """Return runs with these queueing delays by engine."""
    engines = {"ns3": "ns3", "over_udp": "ns3-quic", "native": "native"}
    return {engines[name]: [_run(queue_ms=value) for value in values] for name, values in queues_ms.items()}

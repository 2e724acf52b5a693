"""Suites: scenarios with criteria, the verdicts on them, and their page."""

import copy
import io
import json
import math
from typing import Any

import numpy as np
import pytest
from in_process import ExecutorInThisProcess
from rich.console import Console

from bbrgym import Scenario
from bbrgym.benchmark.derived_metrics import DERIVED
from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.report import write_report
from bbrgym.benchmark.results import BenchmarkResult, load_benchmark
from bbrgym.benchmark.run import run_benchmark
from bbrgym.benchmark.statistics import Estimate
from bbrgym.benchmark.verdicts import Verdicts, judge, print_verdicts

CONFIG: dict[str, Any] = {
    "name": "small",
    "engine": "native",
    "competitors": ["bbr"],
    "seeds": [1, 2],
    "suites": {
        "busy": {
            "title": "a <busy> link",
            "section": "5.1",
            "asks": "Is the link busy?",
            "criteria": [{"metric": "link_utilisation", "at_least": 0.5, "because": "half | of it"}],
            "scenarios": {"slow": {"rate_mbps": 2, "duration_s": 2, "flows": [{"rtt_ms": 20, "jitter_ms": 1}]}},
        },
        "beside": {
            "title": "beside CUBIC",
            "section": "5.2",
            "asks": "Is CUBIC harmed?",
            "roles": [0],
            "criteria": [
                {"metric": "throughput_mbps[1]", "than": "cubic", "at_least": 0.5, "because": "a factor of two"},
                {"metric": "smallest_share", "at_most": -1, "because": "nothing keeps it"},
            ],
            "scenarios": {
                "duel": {
                    "rate_mbps": 2,
                    "duration_s": 2,
                    "flows": [{"rtt_ms": 20, "jitter_ms": 1}, {"algorithm": "cubic", "rtt_ms": 20, "jitter_ms": 1}],
                }
            },
        },
        "tunnels": {"title": "tunnels", "section": "6.2", "asks": "And tunnels?", "needs": "tunnels"},
    },
}


def changed(suite: str | None = None, **changes: Any) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    (config if suite is None else config["suites"][suite]).update(changes)
    return config


# What a benchmark makes of suites.


def test_a_benchmark_with_suites_is_equal_after_to_dict_and_from_dict() -> None:
    benchmark = Benchmark.from_dict(CONFIG)
    assert list(benchmark.scenarios) == ["busy/slow", "beside/duel"]
    assert Benchmark.from_dict(json.loads(json.dumps(benchmark.to_dict()))) == benchmark


def test_each_suite_has_its_roles_and_its_references() -> None:
    runs = Benchmark.from_dict(changed(seeds=[1])).runs()
    taken = {(run.scenario_name, run.competitor): [flow.algorithm for flow in run.scenario.flows] for run in runs}
    assert taken == {
        ("busy/slow", "bbr"): ["bbr"],
        ("beside/duel", "bbr"): ["bbr", "cubic"],
        ("beside/duel", "cubic"): ["cubic", "cubic"],
    }
    both = Benchmark.from_dict(changed(seeds=[1], competitors=["bbr", "cubic"])).runs()
    assert {run.key for run in runs} < {run.key for run in both}
    assert len(both) == 4


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (changed("busy", needs="more"), "suite 'busy' must have either scenarios and criteria, or `needs`"),
        (changed("busy", scenarios=["lost"]), "unknown scenario of suite 'busy' 'lost'; known: beside/duel"),
        (changed("busy", criteria=[{"metric": "link_jain", "because": "x"}]), "must have at_least or at_most"),
        (changed("busy", criteria=[{"metric": "link_jain", "at_least": 1}]), "must say in `because` why"),
        (
            changed(competitors=[{"name": "cubic", "algorithm": "bbr"}]),
            "suite 'beside' compares with 'cubic': no other competitor may be called so",
        ),
    ],
)
def test_a_mistake_is_refused_by_name(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Benchmark.from_dict(config)


# Figures, by hand.

SCENARIO = Scenario.from_dict(
    {"rate_mbps": 10.4, "packet_bytes": 1000, "duration_s": 40, "flows": [{"rtt_ms": 20}, {"rtt_ms": 20, "start_s": 8}]}
)


def figure(name: str, *rows: dict[str, float], scenario: Scenario = SCENARIO) -> float:
    return DERIVED[name].measure(rows, scenario)


def test_figures_by_hand() -> None:
    assert figure("smallest_share", {"share": 0.7}, {"share": 0.3}) == pytest.approx(0.6)
    assert figure("convergence_s", {"convergence_s": 3.0}, {}) == 3
    assert figure("convergence_s", {"convergence_s": math.nan}, {}) == 32  # from 8 s to the end
    # 300 packets in 30 s of 20 ms: one per five RTTs; the other flow sends two per RTT.
    sent = [{"sent_packets": count, "rtt_ms": 20, "link_duration_s": 30} for count in (300, 3000)]
    assert figure("packets_per_rtt", *sent) == pytest.approx((0.2 + 2) / 2)
    # Of 10.4 Mbit/s on the wire, 10 are payload. The second flow is active in a quarter of the time.
    link = {"link_rate_mbps": 10.4, "link_active_s": 40}
    sending = [{"send_rate_mbps": 2.0, "active_s": 40}, {"send_rate_mbps": 4.0, "active_s": 10}]
    assert figure("send_ratio", *(row | link for row in sending)) == pytest.approx(0.3)
    nothing = {"send_rate_mbps": 0.0, "active_s": 0, "link_rate_mbps": 10.4, "link_active_s": 0}
    assert math.isnan(figure("send_ratio", nothing))
    # 1000 bytes / (0.1 s sqrt(2 x 0.06 / 3)) are 50 kB/s, 0.4 Mbit/s. Without losses the equation has no limit.
    flows = [{"send_rate_mbps": 2.0, "rtt_mean_ms": 100, "loss_rate": loss} for loss in (0.06, 0.0)]
    assert figure("over_tcp", *flows) == pytest.approx((5 + 0) / 2)


def test_figures_of_the_first_flow_and_of_all_flows_by_hand() -> None:
    # A packet of 1040 bytes takes 1 ms.
    rows = [{"rtt_mean_ms": 40, "rtt_ms": 30, "link_rate_mbps": 8.32, "retransmissions": 1, "sent_packets": 100}]
    rows += [{"rtt_mean_ms": 90, "rtt_ms": 30, "link_rate_mbps": 8.32, "retransmissions": 7, "sent_packets": 300}]
    assert figure("first_flow_delay_ms", *rows) == pytest.approx(40 - 30 - 1)
    assert figure("total_retransmission_rate", *rows) == pytest.approx(8 / 400)


def test_the_completion_time_is_of_flows_with_a_size() -> None:
    plain = {"duration_s": 40, "flows": [{}, {"size_bytes": 100_000}, {"size_bytes": 100_000, "start_s": 30}]}
    never, soon, late = ({"completion_time_ms": time_ms} for time_ms in (math.nan, 2000.0, 4000.0))
    scenario = Scenario.from_dict(plain)
    assert figure("completion_s", never, soon, late, scenario=scenario) == pytest.approx((2 + 4) / 2)
    # A flow that is not complete counts with its time until the end.
    assert figure("completion_s", never, soon, never, scenario=scenario) == pytest.approx((2 + 10) / 2)
    assert math.isnan(figure("completion_s", never, never))


# Verdicts.


@pytest.mark.parametrize(
    ("bounds", "interval", "expected"),
    [
        ((0.9, None), (0.9, 1.0), "pass"),
        ((0.9, None), (0.8, 1.0), "unclear"),
        ((0.9, None), (0.7, 0.8), "fail"),
        ((None, 0.9), (0.8, 0.9), "pass"),
        ((None, 0.9), (0.91, 1.0), "fail"),
        ((0.4, 0.6), (0.5, 0.7), "unclear"),
        ((0.4, None), (math.nan, math.nan), "pass"),  # equal runs: the value, 0.5, is judged
        ((0.6, None), (math.nan, math.nan), "fail"),
        ((None, 1), (0.5, math.inf), "unclear"),
    ],
)
def test_a_verdict_is_about_the_whole_interval(
    bounds: tuple[float | None, float | None], interval: tuple[float, float], expected: str
) -> None:
    assert judge(Estimate(0.5, *interval, 10), *bounds) == expected


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> BenchmarkResult:
    directory = tmp_path_factory.mktemp("suites")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bbrgym.benchmark.run.make_executor", ExecutorInThisProcess)
        return run_benchmark(CONFIG, directory, Console(file=io.StringIO()))


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_verdicts_fit_at_any_width(finished: BenchmarkResult, width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    verdicts = Verdicts.of(finished)
    print_verdicts(verdicts, console)
    assert isinstance(console.file, io.StringIO)
    table = console.file.getvalue().partition("\n\n")[0]
    assert max(map(len, table.splitlines())) <= width
    assert "…" not in table
    for name in verdicts.competitors:
        assert name in table


def with_values(result: BenchmarkResult, column: str, values: dict[tuple[str, int], float]) -> Verdicts:
    """Verdicts on results in which flow 1 of `beside/duel` has these values, by competitor and seed."""
    results = result.results.copy()
    for (competitor, seed), value in values.items():
        is_it = (results["scenario"] == "beside/duel") & (results["competitor"] == competitor)
        results.loc[is_it & (results["seed"] == seed) & (results["flow"] == 1), column] = value
    return Verdicts.of(
        BenchmarkResult(results=results, failures=[], missing=[], directory=result.directory, plan=result.plan)
    )


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ((4.0, 6.0), (5.0, 10.0), "pass"),  # 0.8 and 0.6
        ((2.0, 6.0), (5.0, 10.0), "unclear"),  # 0.4 and 0.6
        ((2.0, 3.0), (5.0, 10.0), "fail"),
        ((0.0, 9.0), (0.0, 10.0), "pass"),  # nothing of nothing is 1
        ((3.0, 6.0), (0.0, 10.0), "unclear"),  # something of nothing
        ((math.nan, 9.0), (5.0, 10.0), "unclear"),  # a run without a value
    ],
)
def test_a_quotient_is_of_runs_with_the_same_seed(
    finished: BenchmarkResult, own: tuple[float, float], other: tuple[float, float], expected: str
) -> None:
    values = {("bbr", seed): value for seed, value in enumerate(own, 1)}
    values |= {("cubic", seed): value for seed, value in enumerate(other, 1)}
    first = next(one for one in with_values(finished, "throughput_mbps", values).judgements if one.suite == "beside")
    assert first.criterion.than == "cubic"
    assert first.verdict == expected


def test_a_suite_has_the_verdict_of_its_worst_criterion(finished: BenchmarkResult) -> None:
    verdicts = Verdicts.of(finished)
    assert verdicts.competitors == ("bbr",)
    assert {name: verdicts.verdict(name, "bbr") for name in verdicts.suites} == {
        "busy": "pass",
        "beside": "fail",
        "tunnels": "not tested",
    }
    assert verdicts.counts("bbr") == "1 pass, 1 fail, 1 not tested"
    measured = [one.measured for one in verdicts.judgements if one.suite == "busy"]
    utilisation = finished.results.query("scenario == 'busy/slow'")["link_utilisation"]
    np.testing.assert_allclose([one.value for one in measured], [utilisation.mean()])


def test_pooled_scenarios_have_one_verdict_about_their_means(finished: BenchmarkResult) -> None:
    suite = finished.plan["config"]["suites"]["busy"]
    pooled = suite | {"scenarios": ["busy/slow", "beside/duel"], "is_pooled": True}
    plan = finished.plan | {"config": finished.plan["config"] | {"suites": {"busy": pooled}}}
    results = finished.results.copy()
    used = {("busy/slow", 1): 0.2, ("busy/slow", 2): 0.4, ("beside/duel", 1): 0.5, ("beside/duel", 2): 0.7}
    for (scenario, seed), value in used.items():
        results.loc[(results["scenario"] == scenario) & (results["seed"] == seed), "link_utilisation"] = value
    (one,) = Verdicts.of(
        BenchmarkResult(results=results, failures=[], missing=[], directory=finished.directory, plan=plan)
    ).judgements
    assert one.scenario == "busy/all"
    # Scenarios are resampled, not seeds: 0.3 and 0.6.
    np.testing.assert_allclose(one.measured, (0.45, 0.3, 0.6, 2))
    assert one.verdict == "unclear"


def test_a_suite_without_one_of_its_scenarios_does_not_pass(finished: BenchmarkResult) -> None:
    suites = finished.plan["config"]["suites"]
    busy = suites["busy"] | {"scenarios": ["busy/slow", "busy/fast"]}
    beside = suites["beside"] | {"scenarios": ["beside/duel", "busy/fast"]}
    scenarios = finished.plan["config"]["scenarios"]
    config = finished.plan["config"] | {"suites": {"busy": busy, "beside": beside}}
    config["scenarios"] = scenarios | {"busy/fast": scenarios["busy/slow"]}
    plan = finished.plan | {"config": config}
    verdicts = Verdicts.of(
        BenchmarkResult(results=finished.results, failures=[], missing=[], directory=finished.directory, plan=plan)
    )
    assert verdicts.verdict("busy", "bbr") == "not run"
    assert verdicts.verdict("beside", "bbr") == "fail"


# Pages.


def test_the_report_has_the_verdicts_and_escapes_names(finished: BenchmarkResult) -> None:
    page = (finished.directory / "report.html").read_text()
    assert "a &lt;busy&gt; link" in page
    assert "half | of it" in page
    assert write_report(load_benchmark(finished.directory)).read_text() == page

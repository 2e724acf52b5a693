"""studies/rfc9743.py: the page of every algorithm by the criteria of RFC 9743."""

from pathlib import Path
from typing import Any

import pandas as pd

from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.statistics import Estimate
from bbrgym.benchmark.suites import Suite
from bbrgym.benchmark.verdicts import Judgement, Verdicts
from studies import rfc9743
from studies.experiments import measure_seeds, seed_runs, table_of_runs

BENCHMARK: dict[str, Any] = {
    "name": "rfc9743/all",
    "engine": {"name": "native"},
    "competitors": ["bbr", "newreno"],
    "seeds": [1, 2],
    "suites": {
        "busy": {
            "title": "a busy link",
            "section": "6",
            "criteria": [
                {"metric": "link_utilisation", "at_least": 0.5, "because": "half of it"},
                {"metric": "packets_per_rtt", "at_most": 0, "because": "nothing keeps it"},
            ],
            "scenarios": {"slow": {"rate_mbps": 2, "duration_s": 1, "flows": [{"rtt_ms": 20, "jitter_ms": 1}]}},
        }
    },
}


def test_verdicts_by_what_is_kept_of_the_runs_are_those_of_the_whole_benchmark() -> None:
    benchmark = Benchmark.from_dict(BENCHMARK)
    jobs = seed_runs(benchmark, lambda _: benchmark.suites["busy"].metrics)
    assert [job.name for job in jobs] == ["busy/slow/bbr", "busy/slow/newreno"]
    results = {job.name: measure_seeds(job) for job in jobs}
    assert [row["seed"] for row in results["busy/slow/bbr"]] == [1, 2]
    assert [row["trace"] for row in results["busy/slow/bbr"]] == [0, 1]
    table = table_of_runs(jobs, results)
    verdicts = Verdicts.of_table(benchmark, table, [("busy/slow", "bbr"), ("busy/slow", "newreno")])
    assert {one: verdicts.verdict("busy", one) for one in verdicts.competitors} == {"bbr": "fail", "newreno": "fail"}
    first = verdicts.judgements[0]
    assert (first.criterion.metric, first.verdict) == ("link_utilisation", "pass")
    text = rfc9743.verdict_table(verdicts)
    assert "| section | criterion | bbr | newreno |" in text
    assert "| 6 | a busy link | **fail** | **fail** |" in text
    assert "|  | fail | 1 | 1 |" in text
    partial = Verdicts.of_table(benchmark, table_of_runs(jobs, {jobs[0].name: results[jobs[0].name]}), [])
    assert partial.verdict("busy", "newreno") == "not run"


def test_the_hash_of_runs_is_of_all_that_decides_what_is_kept_of_them() -> None:
    changes: list[dict[str, Any]] = [{}, {"seeds": [1]}, {"warmup": 0.5}, {"competitors": ["bbr2", "newreno"]}]
    jobs = [seed_runs(Benchmark.from_dict({**BENCHMARK, **change}), lambda _: ["link_jain"])[0] for change in changes]
    jobs += seed_runs(Benchmark.from_dict(BENCHMARK), lambda _: ["link_utilisation"])[:1]
    assert len({job.code for job in jobs}) == len(jobs)


def test_the_page_is_of_every_algorithm_in_every_scenario() -> None:
    benchmark = rfc9743.benchmark()
    assert len(rfc9743.jobs()) == len(benchmark.scenarios) * len(benchmark.competitors)
    assert not [one.name for one in benchmark.competitors if one.name.endswith("-stock")]


def test_what_fails_has_its_worst_scenario() -> None:
    suite = Suite.from_dict("busy", BENCHMARK["suites"]["busy"])[0]

    def judged(competitor: str, scenario: str, value: float, verdict: Any) -> Judgement:
        measured = Estimate(value, value, value, 1)
        return Judgement(
            suite="busy",
            scenario=f"busy/{scenario}",
            criterion=suite.criteria[0],
            competitor=competitor,
            measured=measured,
            verdict=verdict,
        )

    of_bbr = [("a", 0.4, "fail"), ("b", 0.3, "fail"), ("c", 0.5, "unclear"), ("d", 0.9, "pass")]
    result = BenchmarkResult(
        results=pd.DataFrame(),
        failures=[],
        missing=[],
        directory=Path(),
        plan={"config": BENCHMARK | {"warmup": 0.25}},
    )
    judgements = (judged("cubic", "a", 0.9, "pass"), *(judged("bbr", *found) for found in of_bbr))
    verdicts = Verdicts(result, {"busy": suite}, ("bbr", "cubic"), judgements)
    failures = rfc9743.failure_table(verdicts).splitlines()
    assert "| 6 | a busy link | link utilisation | >= 50% | bbr 30.0% (b) |" in failures
    assert "| 6 | a busy link | **fail** | pass |" in rfc9743.verdict_table(verdicts)

"""Benchmarks: plans, runs, resuming, failures, and tables."""

import copy
import io
import json
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pandas as pd
import pyarrow.parquet
import pytest
from fake_engine import FakeEngine
from in_process import ExecutorInThisProcess
from other_json import OTHER_JSON
from policies import PINNED, make_agent
from rich.console import Console

from bbrgym import Engine, Scenario, simulate
from bbrgym.baselines import registry
from bbrgym.benchmark.demo import run_demo
from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.report import headline
from bbrgym.benchmark.results import BenchmarkResult, load_benchmark
from bbrgym.benchmark.run import run_benchmark
from bbrgym.benchmark.tables import (
    Heading,
    overall_rows,
    overall_table,
    print_summary,
    print_table,
    run_table,
    summary_table,
)
from bbrgym.envs.engine import ENGINES, EngineUnavailableError, RegisteredEngine, make_engine
from bbrgym.envs.trace_file import load_trace
from bbrgym.files import open_folder, write_json

CONFIG: dict[str, Any] = {
    "name": "small",
    "scenarios": {
        "duel": {"rate_mbps": 20, "duration_s": 3, "loss": 0.01, "flows": [{"rtt_ms": 10}, {"rtt_ms": 50}]},
        "alone": {"rate_mbps": 12, "duration_s": 3, "flows": [{"rtt_ms": 30}]},
    },
    "competitors": ["bbr", {"name": "calm", "algorithm": "agent", "parameters": {"cwnd_gain": 1.1, "pacing_gain": 1}}],
    "seeds": [1, 2],
    "engine": "fake",
    "executor": {"name": "local", "workers": 2},
}


EXAMPLES = Path(__file__).parents[2] / "examples"
PUBLISHED = [name for name in registry.controllers() if name not in (*registry.OURS, *registry.PROGRAMS)]
OWN = ["bbr-backlog", "policy"]


def make_fake(name: str) -> Engine:
    assert name == "fake"
    return FakeEngine()


class _Cursed(FakeEngine):
    """Fails with bbr in seed 2, and kills its process with bbr in seed 1."""

    def begin_reset(self, scenario: Scenario, seed: int) -> None:
        if scenario.flows[0].algorithm == "bbr":
            if seed == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            self.fail_at_step = 5
        super().begin_reset(scenario, seed)


def make_cursed(name: str) -> Engine:
    return _Cursed()


class _Late(FakeEngine):
    """Has a flaw with bbr in seed 1, and with bbr in seed 2 the first time."""

    episodes: ClassVar[list[tuple[str, int]]] = []

    @property
    def flaw(self) -> str | None:
        assert self._scenario is not None
        run = (self._scenario.flows[0].algorithm, self.resets[-1][1])
        self.episodes.append(run)
        is_late = run == ("bbr", 1) or (run == ("bbr", 2) and self.episodes.count(run) == 1)
        return "a late packet" if is_late else None


def make_late(name: str) -> Engine:
    return _Late()


def changed(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(CONFIG) | changes


def quiet() -> Console:
    return Console(file=io.StringIO(), width=120)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def run(
    config: dict[str, Any],
    directory: Path | str,
    console: Console | None = None,
    make_engine: Any = make_fake,
    beside: Path | None = None,
) -> BenchmarkResult:
    """Run a benchmark in this process, without its report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bbrgym.benchmark.run.make_executor", ExecutorInThisProcess)
        return run_benchmark(
            config, directory, console or quiet(), engine_factory=make_engine, beside=beside, has_report=False
        )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> BenchmarkResult:
    return run(CONFIG, tmp_path_factory.mktemp("benchmark"))


def test_every_run_has_one_row_per_flow_and_its_files(finished: BenchmarkResult) -> None:
    results, directory = finished.results, finished.directory
    assert len(results) == 2 * 2 * (2 + 1)
    assert not results.duplicated(["scenario", "competitor", "seed", "flow"]).any()
    assert (finished.failures, finished.missing) == ([], [])
    pd.testing.assert_frame_equal(pd.read_parquet(directory / "results.parquet"), results)
    for key in results["key"].unique():
        trace = load_trace(directory / "runs" / key / "trace.parquet")
        metrics = json.loads((directory / "runs" / key / "metrics.json").read_text())
        assert (trace.hash, trace.engine) == (metrics["trace_hash"], "fake")
    for path in directory.rglob("*.json"):
        json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_late_run_is_repeated_and_then_left_out_but_kept(tmp_path: Path) -> None:
    config = changed(
        scenarios={"alone": CONFIG["scenarios"]["alone"]}, competitors=["bbr", "cubic"], retries=3, seeds=[1, 2]
    )
    _Late.episodes.clear()
    late = run(config, tmp_path, make_engine=make_late)
    assert [_Late.episodes.count(("bbr", seed)) for seed in (1, 2)] == [4, 2]
    assert [_Late.episodes.count(("cubic", seed)) for seed in (1, 2)] == [1, 1]
    names = ["competitor", "seed"]
    assert late.results[names].to_numpy().tolist() == [["cubic", 1], ["bbr", 2], ["cubic", 2]]
    assert late.flawed[[*names, "flaw"]].to_numpy().tolist() == [["bbr", 1, "a late packet"]]
    assert list(late.flaws.values()) == ["a late packet"]
    assert (late.failures, late.missing) == ([], [])
    assert summary_table(late.results)["link_jain", "runs"].to_dict() == {("alone", "bbr"): 1, ("alone", "cubic"): 2}
    stored = pd.read_parquet(tmp_path / "results.parquet")
    assert stored["flaw"].dropna().tolist() == ["a late packet"]
    assert len(stored) == 4
    # The same command repeats it, and it alone.
    _Late.episodes.clear()
    sound = run(config, tmp_path)
    assert (len(sound.results), sound.flaws, _Late.episodes) == (4, {}, [])


def test_real_time_runs_one_at_a_time_unless_told_otherwise() -> None:
    config = changed(engine="linux", competitors=["bbr"], executor={"name": "local"})
    assert Benchmark.from_dict(config).executor.workers == 1
    assert Benchmark.from_dict(config | {"executor": {"name": "local", "workers": 3}}).executor.workers == 3
    assert Benchmark.from_dict(config | {"engine": "fake"}).executor.workers is None


def test_finished_runs_are_not_repeated(tmp_path: Path) -> None:
    config = changed(scenarios={"duel": CONFIG["scenarios"]["duel"]}, seeds=[1])
    first = run(config, tmp_path)
    modified = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/metrics.json")}
    # A truncated file is not a result.
    broken = tmp_path / "runs" / first.results["key"].iloc[0] / "metrics.json"
    broken.write_text(broken.read_text()[:100])
    console = quiet()
    second = run(config | {"seeds": [1, 2]}, tmp_path, console)
    again = {path for path, time in modified.items() if path.stat().st_mtime_ns != time}
    assert again == {broken}
    assert "1 of 4 runs are already done" in said(console)
    assert "leave" not in said(console)
    kept = second.results.query("seed == 1").reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, first.results)
    console = quiet()
    run(config | {"seeds": [2, 3]}, tmp_path, console)
    assert "2 of 4 runs in the results of this folder are not of this benchmark" in said(console)
    assert "made again" not in said(console)
    console = quiet()
    slower = {"duel": CONFIG["scenarios"]["duel"] | {"rate_mbps": 5}}
    run(config | {"seeds": [2, 3], "scenarios": slower}, tmp_path, console)
    assert "4 of 4 runs in the results of this folder were made with other code" in said(console)
    assert "leave" not in said(console)


def test_stored_json_of_another_shape_is_refused_or_run_again(tmp_path: Path, finished: BenchmarkResult) -> None:
    config = changed(scenarios={"alone": CONFIG["scenarios"]["alone"]}, competitors=["bbr"], seeds=[1])
    first = run(config, tmp_path)
    folder = tmp_path / "runs" / first.results["key"].iloc[0]
    for text in OTHER_JSON:
        (folder / "metrics.json").write_text(text)
        assert load_benchmark(tmp_path).results.empty
    pd.testing.assert_frame_equal(run(config, tmp_path).results, first.results)
    for name in ("benchmark.json", "failures.json"):
        good = (tmp_path / name).read_text()
        for text in OTHER_JSON:
            if (name, text) == ("failures.json", "[]"):
                continue
            (tmp_path / name).write_text(text)
            with pytest.raises(ValueError, match=f"{name}' is damaged: "):
                load_benchmark(tmp_path)
        (tmp_path / name).write_text(good)
    table = pyarrow.parquet.read_table(folder / "trace.parquet")
    for text in OTHER_JSON:
        odd = table.replace_schema_metadata({b"bbrgym": text.encode()})
        pyarrow.parquet.write_table(odd, tmp_path / "odd.parquet")
        with pytest.raises(ValueError, match=r"odd\.parquet"):
            load_trace(tmp_path / "odd.parquet")


def test_runs_of_another_benchmark_are_linked(tmp_path: Path, finished: BenchmarkResult) -> None:
    root = tmp_path / "all"
    for place in (root / "one" / "runs", root / "group" / "two" / "runs"):
        place.mkdir(parents=True)
    first, second, third, *_ = finished.results["key"].unique()
    for key, place in ((first, root / "one"), (second, root / "group" / "two"), (third, root / "one")):
        shutil.copytree(finished.directory / "runs" / key, place / "runs" / key)
    (root / "one" / "runs" / third / "metrics.json").write_text("{")  # truncated
    console = quiet()
    result = run(changed(), root / "group" / "three", console, beside=root)
    assert "2 of 8 runs linked from other benchmarks" in said(console)
    assert "already done" not in said(console)
    pd.testing.assert_frame_equal(result.results, finished.results)
    for key, place in ((first, root / "one"), (second, root / "group" / "two")):
        for name in ("trace.parquet", "metrics.json"):
            assert (place / "runs" / key / name).samefile(result.directory / "runs" / key / name)


def test_files_are_copied_where_they_cannot_be_linked(
    tmp_path: Path, finished: BenchmarkResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", Mock(side_effect=OSError("another file system")))
    (tmp_path / "one").symlink_to(finished.directory)
    console = quiet()
    result = run(changed(), tmp_path / "two", console, beside=tmp_path)
    assert "8 of 8 runs linked" in said(console)
    pd.testing.assert_frame_equal(result.results, finished.results)


def test_metrics_of_other_code_are_computed_again_without_a_simulation(
    tmp_path: Path, finished: BenchmarkResult
) -> None:
    shutil.copytree(finished.directory, tmp_path / "old")
    for path in tmp_path.glob("old/runs/*/metrics.json"):
        old = json.loads(path.read_text())
        rows = [{name: 0 if name == "share" else value for name, value in row.items()} for row in old["rows"]]
        write_json(path, old | {"metrics_hash": "other code", "rows": rows})
    result = run(changed(), tmp_path / "old", make_engine=Mock(side_effect=AssertionError("it simulates")))
    assert result.failures == []
    pd.testing.assert_frame_equal(result.results, finished.results)


def test_a_killed_worker_and_a_failing_engine_cost_only_their_runs(tmp_path: Path, finished: BenchmarkResult) -> None:
    config, console = changed(scenarios={"duel": CONFIG["scenarios"]["duel"]}), quiet()
    result = run_benchmark(config, tmp_path, console, engine_factory=make_cursed)
    expected = finished.results.query("scenario == 'duel'").reset_index(drop=True)
    calm = expected.query("competitor == 'calm'").reset_index(drop=True)
    pd.testing.assert_frame_equal(result.results, calm)
    errors = {failure.seed: failure.error for failure in result.failures}
    assert (len(result.failures), set(errors)) == (2, {1, 2})
    assert "SIGKILL" in errors[1]
    assert errors[2] == "EngineError: the fake engine fails in step 5, as it was told to"
    assert "SIGKILL" in said(console)
    assert "SIGKILL" in (tmp_path / "report.html").read_text()
    # They are tried again next time.
    repaired = run(config, tmp_path)
    assert repaired.failures == []
    pd.testing.assert_frame_equal(repaired.results, expected)


class Absent(FakeEngine):
    """An engine that this machine cannot run: `begun` counts the attempts."""

    begun = 0

    def _request_reset(self, *_: Any) -> None:
        Absent.begun += 1
        raise EngineUnavailableError("engine absent cannot run here: install it")


def test_an_engine_that_cannot_run_here_ends_a_benchmark_and_a_demonstration_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENGINES, "absent", RegisteredEngine(f"{__name__}:Absent"))
    monkeypatch.setattr(Absent, "begun", 0)
    config = changed(engine="absent")
    with pytest.raises(EngineUnavailableError, match=r"^engine absent cannot run here: install it$"):
        run(config, tmp_path, make_engine=make_engine)
    with pytest.raises(EngineUnavailableError, match="install it"):
        run_demo({"train": {}, "benchmark": config}, tmp_path / "demo", tmp_path / "demo benchmark", quiet())
    assert Absent.begun <= 3  # of the benchmark's eight runs, the two that are submitted at a time
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("url", ["memory://bucket/{}", "file://{}/a folder"])
def test_a_benchmark_on_storage_by_url(url: str, tmp_path: Path, finished: BenchmarkResult) -> None:
    pytest.importorskip("upath", reason="storage by URL needs bbrgym[storage]")
    folder = url.format(tmp_path)
    result = run(changed(), folder)
    assert (result.failures, result.missing) == ([], [])
    files = {str(path.relative_to(finished.directory)) for path in finished.directory.rglob("*.parquet")}
    assert len(files) == 1 + 8
    files |= {name.replace("trace.parquet", "metrics.json") for name in files}
    for name in files:
        assert (open_folder(folder) / name).read_bytes() == (finished.directory / name).read_bytes()
    # It resumes there, and its report is written there.
    (open_folder(folder) / "runs" / result.results["key"].iloc[0] / "metrics.json").unlink()
    console = quiet()
    again = run(changed(), folder, console)
    assert "7 of 8 runs are already done" in said(console)
    pd.testing.assert_frame_equal(again.results, result.results)


def test_workers_must_share_the_storage(tmp_path: Path) -> None:
    pytest.importorskip("upath", reason="storage by URL needs bbrgym[storage]")
    config = changed(scenarios={"alone": CONFIG["scenarios"]["alone"]}, competitors=["bbr"], seeds=[1])
    # Memory is that of each process.
    result = run_benchmark(config, f"memory://{tmp_path}", quiet(), engine_factory=make_fake, has_report=False)
    (failure,) = result.failures
    assert "which all workers must share" in failure.error


def test_an_interrupted_benchmark_lists_its_missing_runs(tmp_path: Path, finished: BenchmarkResult) -> None:
    done = finished.results["key"].iloc[0]
    (tmp_path / "runs").mkdir()
    (tmp_path / "benchmark.json").write_text((finished.directory / "benchmark.json").read_text())
    (tmp_path / "runs" / done).symlink_to(finished.directory / "runs" / done)
    left = load_benchmark(tmp_path)
    assert left.results["key"].unique().tolist() == [done]
    assert len(left.missing) == len(finished.plan["runs"]) - 1
    (tmp_path / "benchmark.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"no benchmark\.json"):
        load_benchmark(tmp_path)


def test_a_file_that_is_not_a_trace_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"x": [1.0]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="is not a trace"):
        load_trace(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": [3]},
        {"step_ms": 50.0},
        {"warmup": 0.5},
        {"engine": "native"},
        {"scenarios": {"alone": {"rate_mbps": 13, "duration_s": 3, "flows": [{"rtt_ms": 30}]}}},
        {"competitors": [{"algorithm": "agent", "parameters": {"cwnd_gain": 1.2}}]},
    ],
)
def test_key_changes_with_everything_that_decides_a_run(change: dict[str, Any]) -> None:
    config = changed(scenarios={"alone": CONFIG["scenarios"]["alone"]}, competitors=["bbr"], seeds=[1])
    (before,), (after,) = Benchmark.from_dict(config).runs(), Benchmark.from_dict(config | change).runs()
    assert before.key != after.key


def test_key_changes_with_the_code_and_not_with_names_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({Benchmark.from_dict(changed(engine=engine)).code_hash() for engine in ("native", "ns3", "fake")}) == 3
    before = {run.key for run in Benchmark.from_dict(changed()).runs()}
    renamed = changed(
        scenarios={"other": CONFIG["scenarios"]["alone"]},
        competitors=[{"name": "google", "algorithm": "bbr"}],
        engine={"name": "fake", "timeout_s": 99},
        executor="ray",
    )
    assert {run.key for run in Benchmark.from_dict(renamed).runs()} < before
    monkeypatch.setattr(Benchmark, "code_hash", lambda _: "another build")
    assert not before & {run.key for run in Benchmark.from_dict(changed()).runs()}


@pytest.mark.parametrize(
    ("query", "engine", "names"),
    [
        ("all", "ns3", [*PUBLISHED, *OWN, *registry.NS3_COMPARATORS]),
        ("all", {"name": "ns3", "transport": "quic"}, [*PUBLISHED, *OWN]),
        ("all", "native", [*PUBLISHED, *OWN]),
        ("published", "ns3", PUBLISHED),
        ("stock", "ns3", list(registry.NS3_COMPARATORS)),
        ("all - published - cubic-stock", "native", OWN),
        (
            ["published - cubic", "stock - bbr-stock + cubic"],
            "ns3",
            [*(name for name in PUBLISHED if name != "cubic"), "cubic-stock", "newreno-stock", "cubic"],
        ),
        (["bbr", {"name": "mine", "algorithm": "agent"}], "native", ["bbr", "mine"]),
        (["stock + bbr", str(EXAMPLES / "aimd.c")], "native", ["bbr", "aimd.c"]),
    ],
)
def test_competitors_are_found_by_query(query: Any, engine: Any, names: list[str]) -> None:
    benchmark = Benchmark.from_dict(changed(competitors=query, engine=engine))
    assert [competitor.name for competitor in benchmark.competitors] == names


def test_the_path_of_a_c_file_can_have_blanks(tmp_path: Path) -> None:
    path = tmp_path / "my own" / "mine - 2.c"
    path.parent.mkdir()
    shutil.copy(EXAMPLES / "aimd.c", path)
    benchmark = Benchmark.from_dict(changed(competitors=["bbr", str(path)], engine="native"))
    assert [competitor.file for competitor in benchmark.competitors] == [None, str(path)]


def test_an_agent_competes_as_it_was_trained(tmp_path: Path) -> None:
    agent = make_agent(widths=(), **PINNED)
    agent.save(tmp_path / "trained")
    config = changed(competitors=["bbr"], agent=str(tmp_path / "trained"), seeds=[1])
    result = run(config, tmp_path / "benchmark")
    assert result.failures == []
    row = result.results.query("scenario == 'duel' and competitor == 'agent'").iloc[0]
    trace = load_trace(tmp_path / "benchmark" / "runs" / row["key"] / "trace.parquet")
    scenario = Scenario.from_dict(CONFIG["scenarios"]["duel"]).with_algorithm("agent")
    assert trace.step_ms == 100.0
    again = simulate(scenario, FakeEngine(), seed=1, step_ms=100.0, policy=agent.policy(scenario))
    assert trace.hash == again.hash
    # The agent's gains matter.
    assert trace.hash != simulate(scenario, FakeEngine(), seed=1, step_ms=100.0).hash


BBR = {"algorithm": "bbr"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scenarios": {}}, "needs scenarios: choose an experiment"),
        ({"scenarios": {"odd": {"rate_mbps": {"uniform": [1, 2]}}}}, "scenario 'odd'"),
        ({"competitors": ["bbr", "bbr"]}, "two competitors are called 'bbr'"),
        (
            {"scenarios": {"a": {}, "a/b": {}}, "competitors": [BBR | {"name": "b/c"}, BBR | {"name": "c"}]},
            "called 'a/b/c'",
        ),
        ({"competitors": "all - bbr9"}, "unknown competitor 'bbr9'"),
        ({"competitors": "published + mine.c"}, "must be an entry of its own"),
        ({"competitors": []}, "needs competitors: benchmark.competitors="),
        ({"competitors": ["all stock"]}, "got 'all stock'"),
        ({"competitors": ["bbr-stock"], "engine": "native"}, "has no algorithm 'bbr-stock'"),
        ({"competitors": [{"algorithm": "bbr", "agent": "x"}]}, "either an algorithm or an agent"),
        ({"competitors": [{"algorithm": "bbr", "policy": "x"}]}, "only a competitor with algorithm 'policy'"),
        ({"roles": [1]}, r"roles in scenario 'alone' .*\[0, 1\), got 1"),
        (
            {"scenarios": {"duel": {"flows": [{}, {"algorithm": "cubic"}]}}},
            r"a flow of scenario 'duel' has the algorithm cubic.*benchmark\.roles=\[0\]",
        ),
        ({"executor": {"name": "slurm", "cluster": "x"}}, "executor.cluster 'x'"),
        ({"agent": "nowhere"}, "no trained agent in 'nowhere'"),
        (
            {"scenarios": {"early": {"duration_s": 4, "flows": [{"stop_s": 0.5}, {"stop_s": 1.0}]}}},
            r"scenario 'early': no flow sends after the warm-up: warmup=0\.25 .*last stop_s is 1:",
        ),
    ],
)
def test_a_bad_configuration_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        run(changed(**change), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def results_of(jain: dict[str, list[float]], queue: dict[str, list[float]]) -> pd.DataFrame:
    rows = [
        {
            "scenario": "s",
            "competitor": name,
            "seed": seed,
            "key": f"{name}{seed}",
            "flow": flow,
            "trace_hash": value,
            "algorithm": name,
            "rtt_ms": 50.0,
            "active_s": 8.0,
            "throughput_mbps": 4.0 + flow,
            "share": 0.5,
            "rtt_mean_ms": 60.0,
            "rtt_p95_ms": 70.0,
            "retransmissions": 0,
            "retransmission_rate": 0.0,
            "loss_rate": 0.0,
            "link_active_s": 8.0,
            "link_utilisation": 0.9,
            "link_jain": value,
            "link_queue_mean_ms": queue[name][seed],
            "link_queue_p95_ms": 20.0,
            "link_drops": 0,
            "link_random_losses": 0,
            "convergence_s": math.nan if value < 0.9 else 2.0,
        }
        for name, values in jain.items()
        for seed, value in enumerate(values)
        for flow in (0, 1)
    ]
    return pd.DataFrame(rows)


def test_the_summary_says_where_all_seeds_give_the_same_run() -> None:
    results = results_of({"calm": [0.5, 0.5], "noisy": [0.5, 0.6]}, {"calm": [1, 1], "noisy": [1, 2]})

    def shown(frame: pd.DataFrame) -> str:
        console = Console(file=io.StringIO(), width=120)
        print_summary(frame, console)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    assert "identical rows in 1 of 2 pairs of scenario and competitor, for example calm in s" in shown(results)
    assert "identical rows" not in shown(results[results["competitor"] == "noisy"])
    assert "identical rows" not in shown(results[results["seed"] == 0])
    assert "calm and noisy are identical in all runs." in shown(results[results["seed"] == 0])
    assert "identical in all runs" not in shown(results)


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_the_summary_fits_at_any_width_and_cuts_nothing_but_names(width: int) -> None:
    name = "a-competitor-with-a-long-name"
    results = results_of({name: [0.5, 0.61], "quick": [0.7, 0.8]}, {name: [100.25, 222.5], "quick": [1, 2]})
    console = Console(file=io.StringIO(), width=width)
    print_summary(pd.concat([results, results.assign(scenario="t")]), console)
    lines = said(console).splitlines()
    table = lines[: next(index for index, line in enumerate(lines) if line.startswith("Means"))]
    assert max(map(len, table)) <= width
    assert "…" not in "".join(cell for line in table for cell in line.split()[1:])
    rows = [line for line in table if line.startswith("quick")]
    assert len(rows) >= 3
    for text in ("4.00", "5.00", "90.0%", "0.75", "1.5"):
        assert any(text in line for line in rows), text
    assert ("0.75 [0.70 0.80]" in said(console)) == (width >= 120)
    assert ("Left out at this width: " in said(console)) == (width < 100)


def test_columns_that_must_stay_are_printed_below_where_they_do_not_fit() -> None:
    console = Console(file=io.StringIO(), width=40)
    names = [f"competitor-{index}" for index in range(6)]
    left = print_table(console, ["criterion", *names], [["beside a flow of CUBIC", *["not tested"] * 6]], "all")
    assert left == []
    text = said(console)
    assert max(map(len, text.splitlines())) <= 40
    assert text.count("not tested") == 6
    assert all(name in text for name in names)
    assert text.count("beside a flow of") > 1


def test_a_column_with_the_highest_rank_goes_first() -> None:
    console = Console(file=io.StringIO(), width=20)
    headings = [Heading("name", kind="name"), Heading("much", rank=1), Heading("more", rank=2), Heading("must")]
    assert print_table(console, headings, [["abc", "12345", "12345", "12345"]]) == ["more"]
    assert "12345" in said(console)


def test_summary_has_means_and_intervals_in_the_stated_order() -> None:
    results = results_of(
        {"low": [0.5, 0.6, 0.7], "slow": [0.95, 0.95, 0.95], "quick": [0.949, 0.95, 0.951]},
        {"low": [1, 1, 1], "slow": [9, 9, 9], "quick": [2, 4, 6]},
    )
    table = summary_table(results)
    assert table.index.get_level_values("competitor").tolist() == ["quick", "slow", "low"]
    low, slow = table.loc["s", "low"], table.loc["s", "slow"]
    assert low["link_jain", "mean"] == pytest.approx(0.6)
    assert 0.5 <= low["link_jain", "low"] < 0.6 < low["link_jain", "high"] <= 0.7
    assert (low["link_jain", "runs"], low["throughput_mbps", "mean"]) == (3, 9.0)
    assert (low["converged", "mean"], slow["converged", "mean"]) == (0.0, 1.0)
    # Equal runs have no interval, as one has none; different ones may agree in one metric.
    assert slow["link_jain"][["low", "high"]].isna().all()
    assert summary_table(results[results["seed"] == 0]).loc["s", "low"]["link_jain"][["low", "high"]].isna().all()
    assert low["link_queue_mean_ms", "low"] == 1.0


def test_metrics_of_a_run_follow_from_its_flows_and_link() -> None:
    results = results_of({"bbr": [0.5]}, {"bbr": [1]}).assign(
        active_s=[4.0, 1.0],  # 2 x 4 and 6 x 1 Mbit
        throughput_mbps=[2.0, 6.0],
        retransmissions=[3, 5],
        received_bytes=[1_000_000, 3_000_000],
        sent_packets=[300, 700],
        arrived_mbps=[3.0, 7.0],
        inorder_goodput_mbps=[2.0, 5.0],
        rtt_peak_ms=[80.0, 90.0],
        link_duration_s=4.0,
        link_active_s=4.0,
        link_rate_mbps=10.0,
        link_drops=6,
        link_random_losses=4,
    )
    row = run_table(results).iloc[0]
    expected = {
        "throughput_mbps": 3.5,
        "throughput_ratio": 3.0,
        "throughput_mbps[1]": 6.0,
        "retransmissions": 8,
        "retransmissions_per_s": 2.0,
        "application_utilisation": 0.8,
        "true_loss": 0.01,
        "arrived_mbps": 4.75,
        "inorder_goodput_mbps": 3.25,
        "inorder_loss": 1.5 / 4.75,
        "rtt_peak_ms": 90.0,
        "rtt_mean_ms[0]": 60.0,
        "queue_ratio": 0.02,
    }
    assert row[list(expected)].to_dict() == pytest.approx(expected)
    assert math.isnan(row["send_rate_mbps"])  # a column that these results do not have


def test_over_all_scenarios_the_one_that_fails_counts_and_is_shown() -> None:
    easy = [results_of({"bbr": [0.8, 1.0]}, {"bbr": [5, 5]}).assign(scenario=name) for name in "stu"]
    hard = results_of({"bbr": [0.1, 0.3]}, {"bbr": [45, 45]}).assign(scenario="v")
    alone = results_of({"bbr": [1.0, 1.0]}, {"bbr": [15, 15]}).assign(scenario="w").query("flow == 0")
    row = overall_table(pd.concat([*easy, hard, alone])).loc["bbr"]
    assert row["link_jain", "mean"] == pytest.approx((3 * 0.9 + 0.2) / 4)
    assert row["link_jain", "worst"] == pytest.approx(0.2)
    assert row["queue_ratio", "mean"] == pytest.approx(0.3)  # with that of the flow alone
    assert row["queue_ratio", "worst"] == pytest.approx(0.9)


def test_over_all_scenarios_who_lacks_one_comes_last_and_leads_nowhere(tmp_path: Path) -> None:
    both = {"bbr": [1.0, 1.0], "cubic": [0.9, 0.9]}
    easy = results_of(both, {"bbr": [5, 5], "cubic": [6, 6]})
    hard = results_of({"cubic": [0.5, 0.7]}, {"cubic": [45, 45]}).assign(scenario="t")
    results = pd.concat([easy, hard])
    table = overall_table(results)
    assert list(table.index) == ["cubic", "bbr"]
    assert table["link_jain", "worst"].isna().to_dict() == {"cubic": False, "bbr": True}
    headings, rows = overall_rows(results)
    assert [row[0] for row in rows] == ["cubic", "bbr (lacks 1 of 2)"]
    assert rows[1][1 + headings.index("worst")] == "-"

    said = headline(BenchmarkResult(results, [], [], tmp_path, {}), ["s", "t"])
    assert "bbr" not in said


def test_over_all_scenarios_seeds_with_equal_runs_have_no_interval() -> None:
    equal = results_of({"bbr": [0.8] * 3, "cubic": [0.7] * 3}, {"bbr": [5] * 3, "cubic": [9] * 3})
    varied = results_of({"bbr": [0.9] * 3, "cubic": [0.5, 0.6, 0.7]}, {"bbr": [6] * 3, "cubic": [7, 8, 9]})
    results = pd.concat([equal, varied.assign(scenario="t")])
    table = overall_table(results)
    assert table.loc["bbr", "link_jain"][["low", "high"]].isna().all()
    low, high = table.loc["cubic", "link_jain"][["low", "high"]]
    assert low < high
    assert (table.loc["cubic", "retransmission_rate"][["low", "high"]] == 0).all()  # of different runs that agree in it
    # The other scenario's runs differ, but do not have the metric.
    without = results.assign(link_jain=results["link_jain"].where(results["scenario"] == "s"))
    assert overall_table(without).loc["cubic", "link_jain"][["low", "high"]].isna().all()
    _, rows = overall_rows(results)
    cells = {row[0]: row[1] for row in rows}
    assert cells["bbr"] == "0.85"
    assert "[" in cells["cubic"]


def test_summary_prints_names_verbatim_and_works_without_intervals_or_results() -> None:
    console = quiet()
    print_summary(results_of({"[red]x[/red]": [0.5]}, {"[red]x[/red]": [1]}), console)
    assert "[red]x[/red]" in said(console)
    assert "0.50 " in said(console)
    assert "0.50 [" not in said(console)
    print_summary(pd.DataFrame(columns=["scenario"]), console)
    assert "no results" in said(console)


@pytest.mark.parametrize(("engine", "count"), [("native", 10), ("fake", 3)])
def test_there_are_ten_seeds_by_default_where_a_run_takes_milliseconds(engine: str, count: int) -> None:
    plain = {"scenarios": {"s": {"duration_s": 2, "flows": [{"rtt_ms": 20}]}}, "competitors": ["bbr"], "engine": engine}
    for seeds in ({}, {"seeds": None}):
        assert Benchmark.from_dict({**plain, **seeds}).seeds == tuple(range(1, count + 1))
    assert Benchmark.from_dict({**plain, "seeds": [7]}).seeds == (7,)

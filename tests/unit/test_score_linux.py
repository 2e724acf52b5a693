"""The score in real time: what it counts, and what its command prints. A native engine stands in for Linux."""

import dataclasses
import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from in_process import ExecutorInThisProcess

from bbrgym.baselines.registry import COUNTERPARTS, LINUX_COMPARATORS
from bbrgym.benchmark import score_linux, score_linux_report
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.score_linux import LinuxScore, score_on_linux
from bbrgym.cli import main
from bbrgym.envs.engine import EngineDescription, EngineError
from bbrgym.envs.linux import engine as linux_engine
from bbrgym.envs.native.engine import NativeEngine
from bbrgym.envs.scenario import Scenario

OURS = {**COUNTERPARTS, "command": "newreno"}


class StandIn(NativeEngine):
    """A native engine that is late with CoDel's queue, and in which the commands `false` fail."""

    description = EngineDescription("stand-in", comparators=tuple(LINUX_COMPARATORS), runs_commands=True)
    resets: ClassVar[list[Scenario]] = []

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        self._queue = ""

    @property
    def flaw(self) -> str | None:
        return "late" if self._queue == "codel" else None

    def _request_reset(self, scenario: Scenario, seed: int, policies: Mapping[int, bytes]) -> None:
        self.resets.append(scenario)
        self._queue = scenario.queue
        for index, flow in enumerate(scenario.flows):
            if flow.client in (("false",), ("sleep",)):
                what = (
                    "client ended with status 1" if flow.client == ("false",) else "server did not listen at port 5001"
                )
                raise EngineError(f"flows[{index}]: the {what}")
            if flow.parameters:
                raise EngineError("the worker has ended")
        flows = (
            dataclasses.replace(
                flow, algorithm=OURS.get(flow.algorithm, flow.algorithm), server=(), client=(), data_from="client"
            )
            for flow in scenario.flows
        )
        super()._request_reset(dataclasses.replace(scenario, flows=tuple(flows)), seed, policies)


@pytest.fixture(autouse=True)
def kernel(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The congestion controls that the kernel seems to have."""
    controls = ["reno", "cubic", "bbr"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    for module in (score_linux, linux_engine):
        monkeypatch.setattr(module, "linux_controls", lambda: tuple(controls))
    monkeypatch.setattr(StandIn, "resets", [])
    return controls


def stack(folder: Path, client: str = "client {address}:{port}") -> str:
    path = folder / "mine.yaml"
    path.write_text(f"server: server '{{port}}'\nclient: {client}\ndata_from: server\n")
    return str(path)


def run(what: str, parameters: Mapping[str, float] | None = None, **options: Any) -> LinuxScore:
    candidate = Candidate.of(what, parameters, "linux")
    return score_on_linux(candidate, engine_factory=StandIn, make_executor=in_this_process, **options)


def in_this_process(workers: int) -> ExecutorInThisProcess:
    """Return an executor of runs in real time, of which there is one at a time."""
    assert workers == 1
    return ExecutorInThisProcess()


def test_a_candidate_is_judged_by_twelve_criteria_and_references_run_once() -> None:
    first = run("bbr-backlog")
    assert len(first.by_suite) == 12
    assert not first.has_failed
    assert (first.by_suite["bufferbloat"], first.by_suite["loss-response"]) == ("pass", "fail")
    StandIn.resets.clear()
    again = run("bbr-backlog")
    assert again.by_suite == first.by_suite
    assert again.cached > first.cached
    assert {flow.algorithm for scenario in StandIn.resets for flow in scenario.flows[:1]} == {
        "bbr-backlog",
        "linux-reno",
    }


def test_a_late_run_is_repeated_said_and_not_counted() -> None:
    found = run("bbr-backlog", only="codel")
    assert found.by_suite == {"codel": "not counted"}
    assert not found.has_failed
    assert next(found.reasons()) == "codel/one-flow: not counted: late"
    assert len(StandIn.resets) == 2 * 3  # the candidate's run and Reno's
    assert not found.value.value >= 0
    assert "1 not counted: too few for a score" in score_linux_report.headline(found)


def test_a_rival_that_the_kernel_lacks_is_said(kernel: list[str]) -> None:
    kernel.remove("bbr")
    found = run("cubic")
    assert found.by_suite["beside-bbr"] == "not counted"
    assert "beside-bbr: not counted: the kernel has no bbr: modprobe tcp_bbr, as root" in [*found.reasons()]
    with pytest.raises(ValueError, match="the kernel has no bbr"):
        run("cubic", only="beside-bbr")


def test_three_runs_have_intervals() -> None:
    (one,) = run("bbr", is_full=True, only="wireless-loss").judgements("wireless-loss")
    assert one.measured.low <= one.measured.value <= one.measured.high


def test_programs_that_fail_have_failed_and_soon_run_no_more(tmp_path: Path) -> None:
    found = run(stack(tmp_path, "'false'"))
    assert set(found.by_suite.values()) == {"fail"}
    assert found.value.value == 0
    assert found.has_failed
    assert found.errors["utilisation/1bdp"] == "flows[0]: the client ended with status 1"
    assert found.errors["fair-power/2bdp"] == f"not run, after 3 others: {found.errors['utilisation/1bdp']}"
    assert len(StandIn.resets) <= 2 * (3 + 1)  # the next one has begun


def test_a_server_that_does_not_start_in_time_is_not_counted(tmp_path: Path) -> None:
    found = run(stack(tmp_path, "sleep"), only="bufferbloat")
    assert found.by_suite == {"bufferbloat": "not counted"}
    assert next(found.reasons()) == "bufferbloat/4bdp: flows[0]: the server did not listen at port 5001"


def test_what_the_machine_does_is_not_the_candidates() -> None:
    with pytest.raises(EngineError, match="the worker has ended"):
        run("vegas", {"alpha_packets": 3.0})


def test_a_stack_is_a_file_of_two_commands(tmp_path: Path) -> None:
    competitor = Candidate.of(stack(tmp_path), engine="linux").competitor
    assert (competitor.name, competitor.server) == ("mine", ("server", "{port}"))
    assert (competitor.client, competitor.data_from) == (("client", "{address}:{port}"), "server")
    assert run(stack(tmp_path), only="utilisation").by_suite == {"utilisation": "pass"}


def test_a_stack_is_a_competitor_of_benchmarks(tmp_path: Path) -> None:
    mine = {"name": "mine", "algorithm": "command", "server": ["server", "{port}"], "client": ["client"]}
    scenarios = {"duel": {"flows": [{}, {"algorithm": "linux-cubic"}]}}
    benchmark = Benchmark.from_dict({"engine": "linux", "scenarios": scenarios, "competitors": [mine], "roles": [0]})
    assert Benchmark.from_dict(benchmark.to_dict()) == benchmark
    assert [flow.client for flow in benchmark.runs()[0].scenario.flows] == [("client",), ()]
    with pytest.raises(ValueError, match="server must be empty with algorithm 'cubic'"):
        Benchmark.from_dict({"scenarios": scenarios, "competitors": [{**mine, "algorithm": "cubic"}]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server: a\nclient: b {prot}", r"place in client '\{prot\}' \(did you mean '\{port\}'\?\)"),
        ("server: a", "client must have a program"),
        ("server: a\nclient: b\nclinet: c", "unknown key 'clinet' .*did you mean 'client'"),
        ("[a]", "must be a mapping with keys of name, server, client, data_from"),
        ("server: {", "bad.yaml: while parsing"),
    ],
)
def test_a_bad_file_of_commands_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        Candidate.of(str(path), engine="linux")


def test_each_engine_refuses_the_candidates_of_the_other(tmp_path: Path) -> None:
    for what in ("linux-cubic", stack(tmp_path)):
        with pytest.raises(ValueError, match="runs in the Linux engine only: add --engine linux"):
            Candidate.of(what)
    with pytest.raises(ValueError, match="code in C and in Python is judged in the engine native only"):
        Candidate.of("package.module:decide", engine="linux")


def test_the_command_prints_the_score_and_its_status_says_whether_it_is_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        score_linux, "score_on_linux", partial(score_on_linux, engine_factory=StandIn, make_executor=in_this_process)
    )
    given = ["score", "--engine", "linux", stack(tmp_path)]
    page = tmp_path / "page.html"
    assert main([*given, "--at-least", "0.3", "--html", str(page)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"mine: \d+ of 12 criteria pass in real time, \d+ fail, 1 not counted", printed)
    assert "codel/one-flow: not counted: late" in printed
    assert "<code>client {address}:{port}</code>" in page.read_text()
    assert main([*given, "--only", "bufferbloat", "--at-least", "0.99", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["criteria"]["bufferbloat"]["measured"][0]["needed"] == "<= 1"
    assert facts["is_enough"] is False
    assert main([*given, "--engine", "ns3"]) == 2
    assert "unknown engine of a score 'ns3'; known: native, linux" in capsys.readouterr().err

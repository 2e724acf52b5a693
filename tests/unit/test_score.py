"""The score of a candidate: what it is made of, and what its command prints."""

import dataclasses
import json
import pickle
import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hostile import HOSTILE, write_hostile
from policies import make_agent

import bbrgym
from bbrgym import Flow, Scenario
from bbrgym.baselines import registry
from bbrgym.baselines.policy_file import REFERENCE
from bbrgym.benchmark import quick_rfc9743, score_report
from bbrgym.benchmark import score as scores
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.families import VICTIMS, Draw, draw_scenarios
from bbrgym.benchmark.plan import Competitor
from bbrgym.benchmark.sandbox import ConfinedJob, Reply, Sandbox
from bbrgym.benchmark.score import Score, score_candidate
from bbrgym.checks import read_parameters
from bbrgym.cli import main
from examples import search

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(2) as sandbox:
        yield sandbox


@pytest.fixture(autouse=True)
def few(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch):
    """Four yardsticks, three scenarios of one kind and one beside each victim, and one criterion of RFC 9743."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    every = draw_scenarios(1)
    wanted = {*(f"typical-0{number}" for number in (1, 2, 3)), *(f"{victim}-01" for victim in VICTIMS)}
    draws = [draw for draw in every if draw.name in wanted]
    monkeypatch.setattr(scores, "draw_scenarios", lambda seed, size=1: draws)
    names = ("bbr-backlog", "bbr", "cubic", "newreno")
    monkeypatch.setattr(scores, "yardsticks", lambda: [Competitor(name, name) for name in names])
    monkeypatch.setattr(quick_rfc9743, "QUICK", {"codel": "one-flow"})


def run(sandbox: Sandbox, what: str, **options: object) -> Score:
    return score_candidate(Candidate.of(what), 1, sandbox=sandbox, **options)  # type: ignore[arg-type]


# --- scenarios ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn() -> list[Draw]:
    return draw_scenarios(7)


def test_the_seed_decides_the_scenarios(drawn: list[Draw]):
    assert draw_scenarios(7) == drawn
    others = draw_scenarios(8)
    assert not {draw.scenario for draw in drawn} & {draw.scenario for draw in others}
    assert [draw.name for draw in others] == [draw.name for draw in drawn]


def test_there_are_98_scenarios_of_one_kind_and_8_beside_each_victim(drawn: list[Draw]):
    assert len({draw.name for draw in drawn}) == len(drawn)
    assert sum(draw.roles is None for draw in drawn) == 98
    assert {victim: sum(draw.victim == victim for draw in drawn) for victim in VICTIMS} == dict.fromkeys(VICTIMS, 8)
    for draw in drawn:
        first, *others = draw.scenario.flows
        if draw.victim is not None:
            assert [(flow.algorithm, flow.rtt_ms) for flow in others] == [(draw.victim, first.rtt_ms)]
        assert min(flow.start_s for flow in draw.scenario.flows) == 0
        assert all(flow.size_bytes is None for flow in draw.scenario.flows)


def test_more_scenarios_begin_with_the_same_ones():
    small, large = ({draw.name: draw for draw in draw_scenarios(3, size)} for size in (1, 2))
    assert len(large) == 2 * len(small)
    assert all(large[name] == draw for name, draw in small.items())


def test_the_yardsticks_are_all_published_algorithms_and_ours():
    names = {one.name for one in _all_yardsticks()}
    assert names == set(registry.controllers()) - {"agent", *registry.PROGRAMS} | {"constant"}


@pytest.mark.parametrize("what", [str(REFERENCE), str(REFERENCE / "policy.npz")])
def test_a_policy_is_found_by_its_folder_and_by_its_weights(what: str):
    assert Path(str(Candidate.of(what).competitor.policy)).samefile(REFERENCE)


_all_yardsticks = scores.yardsticks

# --- candidates -----------------------------------------------------------------------------------------------------


def test_a_model_of_another_library_is_imported_once(tmp_path: Path):
    pytest.importorskip("onnx")
    model = tmp_path / "mine.onnx"
    assert main(["export", str(REFERENCE), str(model)]) == 0
    found = Candidate.of(str(model))
    assert found == Candidate.of(str(model))
    assert found.competitor.name == "mine"
    assert Path(str(found.competitor.policy), "policy.npz").is_file()


@pytest.mark.parametrize(
    ("what", "parameters", "text"),
    [
        ("bbr9", {}, "'bbr9' is no file, .* no algorithm .*'bbr'.*; known algorithms: ag"),
        ("bbr", {"beta": 1}, "unknown parameter 'beta' of algorithm 'bbr'"),
        ("module:name", {"beta": 1}, "only algorithms and C files take parameters, got beta"),
        ("scripted:backlog", {}, "not scripted agents"),
    ],
)
def test_what_is_no_candidate_is_refused(what: str, parameters: dict[str, float], text: str):
    with pytest.raises(ValueError, match=text):
        Candidate.of(what, parameters)
    with pytest.raises(FileNotFoundError):
        Candidate.of("no/such/file.c")


# --- the score ------------------------------------------------------------------------------------------------------


def test_the_score_is_the_fair_power_over_that_of_the_best_yardstick(sandbox: Sandbox):
    found = run(sandbox, "bbr")
    assert found.name == "bbr (candidate)"
    power = {name: [run["fair_power"] for run in runs[:3]] for name, runs in found.runs.items()}
    assert power["bbr (candidate)"] == power["bbr"]
    best = np.max([power[name] for name in ("bbr-backlog", "bbr", "cubic", "newreno")], axis=0)
    assert found.value.value == pytest.approx(np.mean(power["bbr"] / best))
    assert found.is_repeatable
    assert not found.failures


def test_the_same_seed_runs_no_yardstick_again(sandbox: Sandbox):
    first = run(sandbox, "bbr", has_rfc9743=False)
    second = run(sandbox, "bbr", has_rfc9743=False)
    assert second.cached == 4
    assert first.value == second.value


def test_results_of_yardsticks_are_of_this_code_and_these_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def key() -> str:
        scores._code_hash.cache_clear()
        flow = Flow("policy", policy=str(tmp_path))
        return scores._key(ConfinedJob([Scenario(flows=(flow,))], [1], warmup=0.3, seconds=9, measure="rows"))

    make_agent(seed=1).save(tmp_path)
    first = key()
    assert key() == first
    make_agent(seed=2).save(tmp_path)
    assert key() != first
    make_agent(seed=1).save(tmp_path)
    assert key() == first
    monkeypatch.setattr(scores, "metrics_hash", lambda: "other metrics")
    assert key() != first
    monkeypatch.undo()
    scores._code_hash.cache_clear()


def test_harm_is_what_a_victim_loses(sandbox: Sandbox):
    found = run(sandbox, "bbr-backlog", has_rfc9743=False)
    assert found.harms.keys() == set(VICTIMS)
    (of_newreno,) = found.harms["cubic"]["newreno"]
    (of_backlog,) = found.harms["cubic"]["bbr-backlog"]
    assert -0.05 < of_backlog < of_newreno < 1


def test_rfc_9743_is_judged(sandbox: Sandbox):
    found = run(sandbox, str(EXAMPLES / "aimd.c")).rfc9743
    assert found is not None
    assert list(found.suites) == ["codel"]
    assert found.verdict("codel", "candidate") in ("pass", "fail", "unclear")
    assert {one.criterion.than for one in found.judgements} == {None, "newreno"}


@pytest.mark.parametrize("kind", ["NaN", "fork bomb"])
def test_what_fails_scores_nothing_and_says_why(sandbox: Sandbox, tmp_path: Path, kind: str):
    found = run(sandbox, write_hostile(tmp_path, HOSTILE[kind]))
    assert found.value.value == 0
    assert len(found.failures) == 5
    text = "chose window nan" if kind == "NaN" else "a system call"
    assert text in " ".join(score_report.notes(found))
    assert found.rfc9743 is not None
    assert found.rfc9743.verdict("codel", "candidate") == "not run"


def test_a_suite_in_which_a_run_fails_is_no_pass(sandbox: Sandbox, tmp_path: Path):
    # A window that depends on the seed: of three seeds, some fail.
    path = Path(
        write_hostile(tmp_path, "if (ack->now_ns > 2000000000 && *(double *)state < 40000) *(double *)state = NAN;")
    )
    text = path.read_text().replace(
        "*(double *)state = 20000;", "*(double *)state = connection->seed % 2 ? 20000 : 80000;"
    )
    path.write_text(text)
    candidate = Candidate.of(str(path))
    found = scores._judge_rfc9743(sandbox, candidate, is_full=False, has_run=True)
    runs = found.result.results.query("competitor == 'candidate'")["seed"].nunique()
    assert 0 < runs < 3
    assert found.verdict("codel", "candidate") == "fail"
    ((where, error),) = found.errors.items()
    assert where[1] == "candidate"
    assert "chose window nan" in error


def test_failures_of_rfc_9743_are_told(sandbox: Sandbox):
    found = run(sandbox, "cubic")
    assert found.rfc9743 is not None
    failed = dataclasses.replace(found.rfc9743, errors={("codel/one-flow", "candidate"): "crashed (SIGSEGV)"})
    notes = score_report.notes(dataclasses.replace(found, rfc9743=failed))
    assert any("codel/one-flow" in note and "SIGSEGV" in note for note in notes)


class Counting:
    """A sandbox that keeps the jobs of candidates."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.workers, self.lost, self.submit = sandbox.workers, sandbox.lost, sandbox.submit
        self.jobs: list[ConfinedJob] = []

    def run(self, jobs: list[ConfinedJob]) -> list[Reply]:
        self.jobs += [job for job in jobs if job.confinement != "none"]
        return self._sandbox.run(jobs)


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A candidate that never returns, and has a second in each run."""
    monkeypatch.setattr(scores, "_SECONDS_ALONE", 1.0)
    return write_hostile(tmp_path, HOSTILE["endless loop"])


def test_a_candidate_that_never_returns_runs_in_three_scenarios_alone(sandbox: Sandbox, endless: str):
    counting = Counting(sandbox)
    found = run(counting, endless)  # type: ignore[arg-type]
    assert [len(job.scenarios) for job in counting.jobs] == [1, 1, 1]
    assert {job.seconds for job in counting.jobs} == {1.0}
    assert found.has_failed
    assert found.value.value == 0
    assert found.rfc9743 is not None
    assert found.rfc9743.counts("candidate") == "1 not run"
    notes = " ".join(score_report.notes(found))
    assert "took longer than 1 s: an endless loop" in notes
    assert "not run: it failed in 3 scenarios before (2 scenarios)" in notes


def test_a_candidate_that_fails_in_a_part_of_the_scenarios_runs_in_all_others(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # It crashes on the longest paths, which are not the first ones.
    draws = scores.draw_scenarios(1)
    rtts = sorted({min(flow.rtt_ms for flow in draw.scenario.flows) for draw in draws[1:]})
    crash = f"if (ack->rtt_ns > {1e6 * rtts[-1]:.0f}) abort();"
    found = run(sandbox, write_hostile(tmp_path, crash), has_rfc9743=False)
    assert 0 < len(found.failures) < len(draws)
    assert not found.has_failed
    alone = {draw.name for draw in draws if min(flow.rtt_ms for flow in draw.scenario.flows) == rtts[-1]}
    assert alone <= found.failures.keys()


def test_the_worst_of_a_full_score_are_replayed_among_as_many(sandbox: Sandbox):
    found = run(sandbox, "cubic", is_full=True, has_rfc9743=False)
    assert all(" --full --only " in command for _, command in score_report.worst(found))


def test_a_candidate_that_is_not_repeatable_is_named(sandbox: Sandbox, tmp_path: Path):
    body = "long now[2]; clock_gettime(1, (void *)now); *(double *)state = 20000 + now[1] % 40000;"
    path = Path(write_hostile(tmp_path, body))
    path.write_text("int clock_gettime(int, void *); /* POSIX, without its header */\n" + path.read_text())
    found = run(sandbox, str(path), has_rfc9743=False)
    assert not found.is_repeatable
    assert "differ" in " ".join(score_report.notes(found))


# --- as a command ---------------------------------------------------------------------------------------------------


def test_the_command_prints_the_score_and_its_status_says_whether_it_is_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    page = tmp_path / "page.html"
    given = ["score", str(EXAMPLES / "vegas.c"), "alpha=3", "--seed", "1", "--no-rfc9743"]
    assert main([*given, "--html", str(page), "--at-least", "0.1"]) == 0
    printed = capsys.readouterr().out
    assert "of the best yardstick's fair power in 3 scenarios of seed 1" in printed
    assert "bbrgym score" in printed
    assert "alpha=3 --seed 1 --only typical-0" in printed
    text = page.read_text()
    assert "<h1>vegas: 0." in text
    assert not re.search(r"(src|href)=|@import|fetch\(", re.sub(r'xlink:href="#|xmlns:?\w*=', "", text))
    figures = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    labels = [ElementTree.fromstring(figure).get("aria-label", "") for figure in figures]
    assert labels[:2] == ["Utilisation against delay", "Regret by scenario"]
    assert re.fullmatch(r"The worst scenario: typical-0\d", labels[2])
    rows = re.findall(r"<tr[^>]*>(<td>.*?)</tr>", text.partition("Beside the yardsticks")[2].partition("</table>")[0])
    assert len(rows) == len(scores.yardsticks()) + 1
    for row in rows:
        _, *cells = re.findall(r"<td>(.*?)</td>", row)
        assert all(re.match(r"\d", cell) for cell in cells[:6]), row
    assert main([*given, "--at-least", "0.999", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["is_enough"] is False
    assert facts["parameters"] == {"alpha": 3}
    assert {"score", "seed", "standings", "harm", "regret", "worst", "failures", "not_contained"} <= facts.keys()


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("more", [[], ["--only", "typical-02"]])
def test_the_tables_fit_at_any_width(
    width: int, more: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["score", "bbr-acd-ns3-published", "--seed", "1", "--no-rfc9743", *more]) == 0
    table = capsys.readouterr().out.partition("The worst scenarios")[0].splitlines()
    assert max(map(len, table[1:-2])) <= width  # the first and the last line are sentences
    (own,) = (line for line in table if "bbr-acd" in line and not line.startswith(("bbr-acd ", "typical")))
    assert "…" not in own.rstrip()[-20:]


def test_yardsticks_have_a_score_and_tell_their_progress(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # in which none is
    said: list[str] = []
    found = run(sandbox, "bbr", has_rfc9743=False, tell=said.append)
    assert said[-1] == "yardsticks: 4 of 4"
    power = found.table["fair_power"].droplevel("seed").unstack("competitor")
    best = power.drop(columns=found.name).max(axis=1)
    assert found.value_of("cubic").value == pytest.approx((power["cubic"] / best).mean())
    assert found.value_of(found.name).value == pytest.approx(found.value.value)


def test_a_scenario_is_replayed_flow_by_flow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["score", "cubic", "--seed", "1", "--only", "typical-02"]) == 0
    printed = capsys.readouterr().out
    assert "typical-02: " in printed
    assert "cubic (candidate)" in printed
    assert main(["score", "cubic", "--seed", "1", "--only", "typical-02", "--html", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert re.findall(r'aria-label="(.*?)"', text) == ["The scenario: typical-02"]
    page = tmp_path / "victim.html"
    capsys.readouterr()
    assert main(["score", "bbr", "--seed", "1", "--only", "cubic-01", "--html", str(page), "--json"]) == 0
    printed = capsys.readouterr()
    assert "cubic: " in printed.err
    assert json.loads(printed.out)["regret"] == []
    assert "flows of two kinds" in page.read_text()
    assert re.findall(r'aria-label="(.*?)"', page.read_text()) == ["The scenario: cubic-01"]
    assert main(["score", "cubic", "--seed", "1", "--only", "typical-99"]) == 2
    assert "there is no scenario 'typical-99'" in capsys.readouterr().err


def test_the_quick_form_of_rfc_9743_has_at_most_twelve_criteria(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    assert len(quick_rfc9743.read_quick_rfc9743(is_full=False)["suites"]) == len(quick_rfc9743.QUICK) <= 12
    assert len(quick_rfc9743.read_quick_rfc9743(is_full=True)["suites"]) > 30


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["bbr", "cwnd_gain=abc"], "parameter cwnd_gain must be a number, got 'abc'"),
        (["bbr", "cwnd_gain=nan"], "parameter cwnd_gain must be a finite number, got nan"),
        (["bbr", "cwnd_gain=2", "cwnd_gain=3"], "parameter cwnd_gain must be given once, got 2 and 3"),
        (["bbr", "=2"], "give parameters as name=number, got '=2'"),
        (["bbr", "--at-least", "nan"], "--at-least must be a finite number in [0, 1], got nan"),
        (["bbr", "--at-least", "60"], "--at-least must be in [0, 1], got 60"),
        (["bbr", "--html", "nowhere/page.html"], "--html: cannot write 'nowhere/page.html': there is no folder"),
        (["bbr", "--html", "."], "--html: cannot write '.': it is a folder"),
        (["bbr", "--html", "mine.py/page.html"], "--html: cannot write 'mine.py/page.html': there is no folder"),
        (["mine.py"], "'mine.py' is a Python file: give mine:function; it has decide"),
        (["mine.py:decide"], "'mine.py' is a Python file: give mine:function; it has decide"),
        (["folder/other.py"], "'folder/other.py' is a Python file: give folder.other:function"),
        (["mine"], "'mine.py' is a Python file: give mine:function"),
        (["none.py"], "there is no file 'none.py'"),
        (["nomodule:fn"], "there is no callable 'nomodule:fn': ModuleNotFoundError: No module named 'nomodule'"),
        (["mine:other"], "there is no callable 'mine:other': 'mine' has no 'other'; it has: decide"),
    ],
)
def test_a_mistake_is_said_before_the_work(
    given: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for path in ("mine.py", "folder/other.py"):
        Path(path).write_text("def decide(row):\n    return row['nope']\n")
    monkeypatch.setattr(scores, "_run_yardsticks", lambda *_: pytest.fail("it works"))
    assert main(["score", *given]) == 2
    assert text in capsys.readouterr().err


def test_a_candidate_that_fails_everywhere_has_the_status_1_and_its_error_in_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def decide(row):\n    return row['nope']\n")
    assert main(["score", "mine:decide", "--seed", "1"]) == 1
    printed = capsys.readouterr().out
    assert "It failed: KeyError: 'nope' at mine.py:2 (3 scenarios)" in printed
    assert "it failed in every scenario" in printed


# --- as a fitness ---------------------------------------------------------------------------------------------------


def test_candidates_of_a_search_have_common_scenarios():
    vegas = str(EXAMPLES / "vegas.c")
    first = bbrgym.score(vegas, {"alpha": 2, "beta": 4}, scenarios=3)
    assert 0 < first <= 1
    assert bbrgym.score(Path(vegas), {"alpha": 2, "beta": 4}, scenarios=3) == first
    assert bbrgym.score(vegas, {"alpha": 200, "beta": 400}, scenarios=3) < first
    assert bbrgym.score("bbr-backlog", scenarios=3) > 0.95


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"alhpa": 2.0}, "unknown parameter 'alhpa' of algorithm 'vegas'; known: alpha, beta"),
        ({"alpha": -1.0}, r"alpha of algorithm 'vegas' must be in \[0.1, 1000\], got -1"),
    ],
)
def test_bad_parameters_of_a_c_file_are_refused_before_the_scenarios(
    sandbox: Sandbox, parameters: dict[str, float], text: str
):
    vegas = str(EXAMPLES / "vegas.c")
    with pytest.raises(ValueError, match=text):
        score_candidate(Candidate.of(vegas, parameters), 1, sandbox=sandbox)
    with pytest.raises(ValueError, match=text):
        bbrgym.score(vegas, parameters, scenarios=2)


@pytest.mark.parametrize(
    ("what", "parameters", "text"),
    [(lambda row: (2, 1), None, "a callable as 'module:name'"), (None, None, "give a path"), ("bbr", "x=3", "mapping")],
)
def test_what_is_no_candidate_is_refused_in_words(what: Any, parameters: Any, text: str):
    with pytest.raises(ValueError, match=text):
        bbrgym.score(what, parameters)


def test_a_failing_candidate_of_a_search_has_the_fitness_zero(tmp_path: Path):
    assert bbrgym.score(write_hostile(tmp_path, HOSTILE["kills its parent"]), scenarios=3) == 0
    assert bbrgym.score("bbr-backlog", scenarios=3) > 0.95


def test_the_fitness_of_a_candidate_that_never_returns_takes_three_runs(
    endless: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
):
    counting = Counting(sandbox)
    monkeypatch.setattr(scores, "_own_sandbox", lambda: counting)
    found = bbrgym.score(endless, scenarios=3, details=True)
    assert len(counting.jobs) == 3
    assert found.value == float(found) == 0
    assert {one.reason.partition(":")[0] for one in found.scenarios} == {"took longer than 1 s"}


def test_details_say_for_each_scenario_what_is_lacking_or_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "def good(row):\n    return 1.1, 1.0\n"
        "def bad(row):\n    return None\n"
        "def late(row):\n    return {'cwnd_packets': float('nan'), 'pacing_rate_mbps': 9.0}\n"
    )
    for what in (str(EXAMPLES / "vegas.c"), "newreno", str(REFERENCE), "mine:good"):
        found = bbrgym.score(what, scenarios=3, details=True)
        assert found.value == bbrgym.score(what, scenarios=3)
        assert found.value == pytest.approx(np.mean([one.value for one in found.scenarios]))
        assert [one.value for one in found.scenarios] == sorted(one.value for one in found.scenarios)
        for one in found.scenarios:
            assert not one.has_failed
            assert one.value == min(1.0, one.fair_power / one.best_fair_power)
            assert (one.reason == "") == (one.value == 1)
            assert one.value == 1 or re.search(rf"{one.best} 0\.\d+; lacks (fairness|utilisation|delay)", one.reason)
    for kind, reason in (
        ("NaN", "chose window nan"),
        ("fork bomb", "made a system call"),
        ("mine:bad", "the callable chose None at 0 s: it must be the pair"),
        ("mine:late", "s: cwnd_packets must be a finite number > 0, got nan"),
    ):
        what = write_hostile(tmp_path, HOSTILE[kind]) if kind in HOSTILE else kind
        found = bbrgym.score(what, scenarios=3, details=True)
        assert (found.value, len(found.scenarios)) == (0, 3)
        assert all(one.has_failed and reason in one.reason for one in found.scenarios)


def test_a_fitness_has_families_and_the_harm_beside_victims(sandbox: Sandbox):
    vegas = str(EXAMPLES / "vegas.c")
    plain, found = (scores.fitness(vegas, scenarios=3, seed=11, beside=beside) for beside in (0, 1))
    assert (plain.value, plain.scenarios) == (found.value, found.scenarios)
    assert plain.harms == ()
    assert found.families == {"typical": pytest.approx(found.value)}
    assert all(one.scenario.startswith(f"{one.family}-") and one.path.duration_s == 30 for one in found.scenarios)
    assert all(one.own["fair_power"] == one.fair_power for one in found.scenarios)
    assert all(one.other["fair_power"] == one.best_fair_power for one in found.scenarios)
    whole = run(sandbox, vegas, has_rfc9743=False)
    for harm, victim in zip(found.harms, VICTIMS, strict=True):
        assert (harm.victim, [harm.value]) == (victim, whole.harms[victim]["vegas"])
        assert [harm.of_own_kind] == whole.harms[victim][victim]
    shared = scores.fitness(vegas, scenarios=3, seed=12, beside=1, sandbox=sandbox)
    assert (shared.value, shared.harms) == (found.value, found.harms)
    whole_names = [one.scenario for one in scores.fitness(vegas, scenarios=5, seed=11).scenarios]
    assert sorted(whole_names) == sorted({one.scenario for one in found.scenarios})  # there are three
    with pytest.raises(ValueError, match="beside must be an integer"):
        scores.fitness(vegas, beside=9)


def test_the_harm_of_a_candidate_that_fails_is_not_known(tmp_path: Path):
    found = scores.fitness(write_hostile(tmp_path, HOSTILE["NaN"]), scenarios=3, seed=11, beside=1)
    assert [np.isnan(harm.value) for harm in found.harms] == [True, True]
    assert found.families == {"typical": 0}


def test_a_candidate_keeps_its_parameters_and_takes_no_others():
    vegas = Candidate.of(str(EXAMPLES / "vegas.c"), {"alpha": 200, "beta": 400})
    assert bbrgym.score(vegas, scenarios=2) == bbrgym.score(vegas.what, {"alpha": 200, "beta": 400}, scenarios=2)
    assert bbrgym.score(vegas, {}, scenarios=2) == bbrgym.score(vegas.what, scenarios=2)
    with pytest.raises(ValueError, match="unknown parameter 'alhpa' of algorithm 'bbr'"):
        bbrgym.score(Candidate.of("bbr"), {"alhpa": 2.0}, scenarios=2)
    with pytest.raises(ValueError, match="only algorithms and C files take parameters"):
        bbrgym.score(Candidate.of(str(REFERENCE)), {"alpha": 2.0}, scenarios=2)
    with pytest.raises(ValueError, match="scenarios must be an integer >= 1, got 0"):
        bbrgym.score("bbr", scenarios=0)


def test_the_fitness_is_picklable_and_runs_in_other_processes():
    assert pickle.loads(pickle.dumps(bbrgym.score)) is bbrgym.score
    candidate = Candidate.of(str(EXAMPLES / "vegas.c"))
    assert pickle.loads(pickle.dumps(candidate)) == candidate
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        there = pool.submit(_fitness, candidate).result()
    assert 0 < there <= 1


def test_the_example_of_a_search_finds_parameters_within_the_bounds_of_its_file():
    found = search.search(0.01)
    assert found.keys() == search.BOUNDS.keys()
    assert all(low <= found[name] <= high for name, (low, high) in search.BOUNDS.items())
    assert 0 < bbrgym.score(search.FILE, found, scenarios=3) <= 1


def test_the_example_of_a_search_prints_the_command_that_scores_what_it_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(search, "yardsticks", lambda: [Competitor("bbr", "bbr")])
    monkeypatch.setattr("sys.argv", ["search.py", "0.01"])
    search.main()
    bbrgym_, score_, what, *parameters = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert (bbrgym_, score_) == ("bbrgym", "score")
    assert bbrgym.score(what, read_parameters(parameters), scenarios=2) > 0


def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = (EXAMPLES.parent / "docs" / "score.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    monkeypatch.chdir(tmp_path)
    Path("mine.c").write_text((EXAMPLES / "aimd.c").read_text())
    Path("examples").symlink_to(EXAMPLES)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
        Path("mine.py").write_text(block)
        for name in re.findall(r"^def (\w+)\(row\)", block, re.MULTILINE):
            found = bbrgym.score(f"mine:{name}", scenarios=3, details=True)
            assert [one.reason for one in found.scenarios if one.has_failed] == []
            assert found.value > 0.1


def _fitness(candidate: Candidate) -> float:
    from bbrgym.benchmark import score as there

    there.yardsticks = lambda: [Competitor("bbr", "bbr")]
    return bbrgym.score(candidate, scenarios=2)

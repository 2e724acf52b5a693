"""Machines that write controllers: the feedback that they get, what stays hidden, and each way to plug them in."""

import json
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hostile import HOSTILE, write_hostile

from bbrgym.baselines.controller_file import HEADER
from bbrgym.benchmark import score as scores
from bbrgym.benchmark.board_entry import check_c_text
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.families import draw_scenarios
from bbrgym.benchmark.feedback import Feedback
from bbrgym.benchmark.plan import Competitor

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES / "discover"))  # the examples are scripts, and import each other as such

import genetic  # noqa: E402
import loop  # noqa: E402
from evaluator import FACTS, PROGRAMS, Evaluator  # noqa: E402

SEED = 271828182
OTHER_SEED = 314159265
SCENARIOS = 8
REAL_YARDSTICKS = scores.yardsticks
FIVE = PROGRAMS["five"]
IDLE = PROGRAMS["bare"].replace("s->window += s->packet", "s->window = s->packet")
"""A window of one packet."""


@pytest.fixture(scope="module", autouse=True)
def few_yardsticks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    names = ("bbr-backlog", "bbr", "cubic")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.setattr(scores, "yardsticks", lambda: [Competitor(name, name) for name in names])
        patch.setattr(scores, "_FEW", {})
        yield


@pytest.fixture(scope="module")
def evaluator(few_yardsticks: None) -> Iterator[Evaluator]:
    with closing(Evaluator(SEED, SCENARIOS, beside=1)) as evaluator:
        yield evaluator


@pytest.fixture(scope="module")
def of_five(evaluator: Evaluator) -> Feedback:
    return evaluator.evaluate(FIVE)


# --- feedback -------------------------------------------------------------------------------------------------------


def test_feedback_has_families_the_worst_scenarios_in_words_and_the_harm(of_five: Feedback):
    assert of_five.error == ""
    assert 0.3 < of_five.value <= 1
    assert of_five.scenarios == SCENARIOS
    assert set(of_five.families) == {"typical", "wide", "crowd", "wireless", "changing"}
    assert len(of_five.worst) == 3
    for text in of_five.worst:
        path, _, lack = text.partition(": ")
        assert re.search(r"flows?, .* Mbit/s, RTT .* ms, buffer .* BDP", path)
        assert re.search(r"of the link; |Jain's index|queueing delay", lack)
    assert [re.match(r"harm to (\w+): a flow of it loses -?\d+%", text)[1] for text in of_five.harms] == [
        "CUBIC",
        "BBR",
    ]
    text = str(of_five)
    for part in (f"score {of_five.value:.3f} in {SCENARIOS} scenarios", *of_five.worst, *of_five.harms, "wireless"):
        assert part in text


def test_a_bad_candidate_runs_four_scenarios_only(evaluator: Evaluator, of_five: Feedback):
    found = evaluator.evaluate(IDLE)
    assert (found.scenarios, of_five.scenarios) == (4, SCENARIOS)
    assert 0 < found.value < evaluator.at_least
    assert found.harms == ()
    assert len(found.worst) == 3


def line_with(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), start=1) if part in line)


@pytest.mark.parametrize(
    ("old", "new", "quoted"),
    [
        ("double queued =", "doubl queued =", "doubl queued ="),  # the compiler
        (
            "s->round_end = ack->delivered;",
            "s->round_end = more(ack->delivered);",
            "more(ack->delivered)",
        ),  # the linker
        ("#include", "#include <stdio.h>\n#include", "#include <stdio.h>"),  # the rules of C files
        ("  if (s->is_starting) {", "  *(volatile int *)8 = 1;\n  if (s->is_starting) {", "(volatile int *)8"),
        ("  if (s->is_starting) {", "  memset((void *)8, 1, 9999);\n  if (s->is_starting) {", "memset((void"),
    ],
)
def test_an_error_names_its_line_and_quotes_it(evaluator: Evaluator, old: str, new: str, quoted: str):
    text = FIVE.replace("#include", "#include <string.h>\n#include").replace(old, new, 1)
    found = evaluator.evaluate(text)
    assert found.value == 0
    assert f"in line {line_with(text, quoted)}" in found.error
    assert quoted in found.error
    assert str(found) == f"score 0: {found.error}"


@pytest.mark.parametrize("text", ["", "int x;", "no C at all", "\x00", "\ud800", '"', "/*", "a\n" * 100])
def test_a_text_that_is_no_controller_has_an_error(evaluator: Evaluator, text: str):
    found = evaluator.evaluate(text)
    assert found.value == 0
    assert found.error
    assert len(found.error) < 1000


def test_a_candidate_that_fails_in_some_scenarios_has_a_score_and_the_line_of_its_fault(evaluator: Evaluator):
    crash = "if (loss->kind == BBRGYM_LOSS && s->window > 60000) *(volatile int *)8 = 1;"
    begin = "  struct five *s = state;\n  if (loss"
    text = FIVE.replace(begin, begin.replace("  if", f"  {crash}\n  if"))
    found = evaluator.evaluate(text)
    assert not found.error
    assert 0 < found.value < 0.9
    assert found.worst[0].endswith(f"crashed (SIGSEGV), in line {line_with(text, crash)}: `{crash}`")


# --- what is hidden -------------------------------------------------------------------------------------------------


def test_no_feedback_tells_a_seed(evaluator: Evaluator, of_five: Feedback, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DISCOVER_SEED", str(SEED))
    reads = [
        '#include "/proc/self/environ"',
        "#include </proc/self/environ>",
        '__asm__(".incbin \\"/proc/self/environ\\"");',
    ]
    found = [of_five, evaluator.evaluate(IDLE), *(evaluator.evaluate(f"{line}\n{FIVE}") for line in reads)]
    assert all(one.error for one in found[2:])
    seeds = {SEED, *(draw.seed for draw in draw_scenarios(SEED))}
    for one in found:
        assert not seeds & {int(number) for number in re.findall(r"\d+", f"{one} {one!r}")}


def test_an_error_quotes_no_other_file(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text(f"DISCOVER_SEED={SEED} is secret;\n")
    text = f'#include "{secret}"\n#include "bbrgym_controller.h"\nint f(void) {{ return missing; }}\n'
    path = tmp_path / "candidate.c"
    path.write_text(text)
    with pytest.raises(ValueError, match=str(SEED)) as refusal:
        Candidate.of(str(path))
    found = Feedback.of_refusal(refusal.value, text)
    assert str(SEED) not in found.error
    assert "in line 3: `int f(void)" in found.error


def test_a_search_hides_a_seed_of_its_own_and_shares_it_with_its_processes(monkeypatch: pytest.MonkeyPatch):
    from evaluator import hidden_seed

    monkeypatch.setenv("DISCOVER_SEED", "5")
    assert hidden_seed() == 5
    monkeypatch.delenv("DISCOVER_SEED")
    found = hidden_seed()
    assert hidden_seed() == found
    monkeypatch.delenv("DISCOVER_SEED")
    assert hidden_seed() != found


def test_the_seed_decides_the_feedback(evaluator: Evaluator, of_five: Feedback):
    with closing(Evaluator(SEED, SCENARIOS, beside=1)) as again, closing(Evaluator(OTHER_SEED, SCENARIOS)) as other:
        assert again.evaluate(FIVE) == of_five
        assert other.evaluate(FIVE).worst != of_five.worst


def test_the_facts_have_the_header_and_the_rules():
    assert HEADER.read_text() in FACTS
    for number in ("60 lines", "132 letters", f"{len(REAL_YARDSTICKS())} known controllers"):
        assert number in FACTS
    for text in PROGRAMS.values():
        check_c_text(text)


# --- hostile programs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["endless loop", "fork bomb", "10 GB", "writes beside", "NaN"])
def test_a_hostile_program_is_contained(
    evaluator: Evaluator, of_five: Feedback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scores, "_SECONDS_ALONE", 1.0)
    text = Path(write_hostile(tmp_path, HOSTILE[kind])).read_text()
    (tmp_path / "hostile.c").unlink()
    assert evaluator.evaluate(text).error.startswith("a # of a C file must begin")  # its headers are no headers of C
    text = re.sub(r"#include <(fcntl|signal|unistd)\.h>\n", "", text).replace("int kill(pid_t, int);", "")
    declared = (
        "enum { O_RDONLY, O_WRONLY, O_CREAT = 64 };\nint open(const char *, int, ...), fork(void);\nvoid _exit(int);"
    )
    found = evaluator.evaluate(text.replace("static void create", f"{declared}\nstatic void create", 1))
    assert found.value == 0
    assert re.search("took longer|system call|SIGSEGV|chose window nan", found.error)
    assert list(tmp_path.iterdir()) == []
    assert evaluator.evaluate(FIVE) == of_five


# --- genetic programming --------------------------------------------------------------------------------------------


class Fake:
    """An evaluator whose values depend on the text alone; it counts its calls."""

    def __init__(self, most: int = 10**9) -> None:
        self.most = most
        self.texts: list[str] = []

    def evaluate(self, text: str) -> Feedback:
        self.texts.append(text)
        if len(self.texts) > self.most:
            raise KeyboardInterrupt
        return Feedback(random.Random(text).random())


def test_genetic_programming_begins_with_five_c(evaluator: Evaluator, of_five: Feedback):
    assert evaluator.evaluate(genetic.program(genetic.FIVE)) == of_five


def test_children_are_valid_files_with_expressions_of_their_own(evaluator: Evaluator):
    rng = random.Random(1)
    genome, texts = genetic.FIVE, set()
    for number in range(300):
        genome = genetic.child(rng, genome, genetic.FIVE)
        text = genetic.program(genome)
        check_c_text(text)
        texts.add(text)
        if number % 60 == 0:
            assert "line" not in evaluator.evaluate(text).error  # it compiles
    assert len(texts) > 200
    assert max(map(len, genome.values())) > 3


def test_a_search_follows_from_its_seed_and_resumes(tmp_path: Path):
    whole = Fake()
    found = genetic.search(tmp_path / "a", 1, 100, whole)
    assert len(set(whole.texts)) == len(whole.texts) == 100
    assert found == sorted(whole.texts, key=lambda text: -random.Random(text).random())[: genetic.POPULATION]
    with pytest.raises(KeyboardInterrupt):
        genetic.search(tmp_path / "b", 1, 100, Fake(most=50))
    rest = Fake()
    assert genetic.search(tmp_path / "b", 1, 100, rest) == found
    assert len(rest.texts) < 70
    again = Fake()
    assert genetic.search(tmp_path / "b", 1, 100, again) == found
    assert again.texts == []
    other = Fake()
    genetic.search(tmp_path / "c", 2, 100, other)
    assert set(other.texts) != set(whole.texts)


# --- adapters -------------------------------------------------------------------------------------------------------


def better(number: int) -> str:
    """Return what a model answers: five.c with better parameters, which differ a little each time."""
    return FIVE.replace('"loss", 0.7', '"loss", 0.99').replace('"target", 3.0', f'"target", {4 + number / 100}')


def test_a_loop_of_ones_own_keeps_the_best_file_and_tells_the_model_what_it_lacks(evaluator: Evaluator):
    prompts: list[str] = []
    answers = iter([IDLE, FIVE, "no C"])

    def model(prompt: str) -> str:
        prompts.append(prompt)
        return next(answers)

    env = loop.WritingEnv(evaluator)
    assert loop.search(model, 3, env) == FIVE
    assert [PROGRAMS["bare"] in prompt for prompt in prompts] == [True, True, False]
    assert FIVE in prompts[2]
    assert all(FACTS in prompt and "worst:\n- " in prompt for prompt in prompts)
    observation, reward, is_terminated, is_truncated, infos = env.step(FIVE)
    assert (observation, reward) == (str(infos["feedback"]), infos["feedback"].value)
    assert (is_terminated, is_truncated) == (False, False)


@contextmanager
def scripted(answer: Callable[[int], str]) -> Iterator[tuple[str, list[str]]]:
    """Serve a model with OpenAI's interface; give its address, and the list of the prompts that it gets."""
    prompts: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompts.append("\n".join(str(message["content"]) for message in given["messages"]))
            message = {"role": "assistant", "content": answer(len(prompts))}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            usage = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 1)
            content = {"id": "1", "object": "chat.completion", "created": 0, "model": given["model"], "usage": usage}
            reply = json.dumps({**content, "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1", prompts
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def own_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCOVER_SEED", str(SEED))
    monkeypatch.chdir(tmp_path)


def check_adapter(best: str, prompts: list[str]) -> None:
    """Check that a search has kept an answer, and that its model got facts and feedback, but no seed."""
    assert best.strip() in {better(number).strip() for number in range(1, 10)}
    assert any("harm to CUBIC" in prompt and "worst:" in prompt for prompt in prompts)
    assert any("struct bbrgym_ack {" in prompt for prompt in prompts)
    assert not any(str(SEED) in prompt for prompt in prompts)


@pytest.mark.slow
def test_openevolve(own_seed: None):
    pytest.importorskip("openevolve", reason="needs openevolve: make discover")
    import with_openevolve

    with scripted(lambda number: f"```c\n{better(number)}```") as (address, prompts):
        best = with_openevolve.search("scripted", 3, address)
    check_adapter(best, prompts)


@pytest.mark.slow
def test_shinka_evolve(own_seed: None, tmp_path: Path):
    pytest.importorskip("shinka", reason="needs shinka-evolve: make discover")
    import with_shinka

    def answer(number: int) -> str:
        code = f"```cpp\n// EVOLVE-BLOCK-START\n{better(number)}// EVOLVE-BLOCK-END\n```"
        return f"<NAME>\nmore\n</NAME>\n<DESCRIPTION>\nA larger target.\n</DESCRIPTION>\n<CODE>\n{code}\n</CODE>"

    with scripted(answer) as (address, prompts):
        best = with_shinka.search(f"local/scripted@{address}", 3, str(tmp_path / "shinka"))
    check_adapter(best, prompts)


@pytest.mark.slow
def test_gepa(own_seed: None):
    pytest.importorskip("gepa", reason="needs gepa: make discover")
    import with_gepa

    prompts: list[str] = []

    def model(prompt: str) -> str:
        prompts.append(str(prompt))
        return f"```\n{better(len(prompts))}```"

    check_adapter(with_gepa.search(model, 3), prompts)

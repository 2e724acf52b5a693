"""The scoreboard: entries that are written, read from anybody, and replayed to the last bit."""

import base64
import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile import CONSTRUCTOR, HOSTILE, write_hostile

from bbrgym.baselines.policy_file import REFERENCE, read_policy
from bbrgym.benchmark import board, board_entry, families
from bbrgym.benchmark import score as scores
from bbrgym.benchmark.board import TRACKS, Check, check_entry, submission, track_of, with_scores
from bbrgym.benchmark.board_entry import Entry, check_c_text, hash_of, parse_entry, read_entry
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.families import draw_scenarios
from bbrgym.benchmark.plan import Competitor
from bbrgym.benchmark.sandbox import Sandbox
from bbrgym.benchmark.score import score_candidate
from bbrgym.cli import main

ROOT = Path(__file__).parents[2]
AIMD = ROOT / "examples" / "aimd.c"
TEXTS = {"author": "A. Author", "licence": "MIT", "command": "by hand"}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(2) as sandbox:
        yield sandbox


@pytest.fixture(autouse=True)
def few(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three yardsticks, of which one is the shipped policy, and two scenarios."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    draws = [draw for draw in draw_scenarios(1) if draw.name in ("typical-01", "cubic-01")]
    for module in (scores, families):
        monkeypatch.setattr(module, "draw_scenarios", lambda seed, size=1: draws)
    monkeypatch.setattr(scores, "yardsticks", lambda: [Competitor(name, name) for name in ("bbr", "cubic", "policy")])


def entry_of(sandbox: Sandbox, what: str) -> Entry:
    candidate = Candidate.of(what)
    entry = submission(candidate, **TEXTS)
    return with_scores(entry, score_candidate(candidate, entry.seed, has_rfc9743=False, sandbox=sandbox))


def check(sandbox: Sandbox, path: Path, text: str) -> Check:
    path.write_text(text)
    return check_entry(path, sandbox)


@pytest.fixture(scope="module")
def aimd(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of an honest entry, with the few scenarios."""
    with pytest.MonkeyPatch.context() as patch:
        few.__wrapped__(tmp_path_factory, patch)  # type: ignore[attr-defined]
        return entry_of(sandbox, str(AIMD)).to_json()


def changed(text: str, change: Callable[[dict[str, Any]], object], is_hashed: bool = True) -> str:
    """Return an entry after a change, by somebody who knows how to hash it."""
    plain = json.loads(text)
    change(plain)
    if is_hashed:
        plain["content_hash"] = hash_of(plain["kind"], plain["content"], plain["parameters"])
    return json.dumps(plain)


# --- honest entries -------------------------------------------------------------------------------------------------


def test_an_entry_is_replayed_to_the_last_bit(sandbox: Sandbox, aimd: str, tmp_path: Path) -> None:
    found = check(sandbox, tmp_path / "aimd.json", aimd)
    assert found.is_equal
    assert found.text.startswith("equal: ")
    assert found.track == "C file of at most 60 lines"
    assert parse_entry(aimd.encode()).to_json() == aimd


def test_the_smallest_change_of_a_score_is_found(sandbox: Sandbox, aimd: str, tmp_path: Path) -> None:
    def better(plain: dict[str, Any]) -> None:
        run = plain["scores"]["runs"]["typical-01"]
        run["jain"] = float(np.nextafter(run["jain"], 2))

    found = check(sandbox, tmp_path / "aimd.json", changed(aimd, better))
    assert not found.is_equal
    assert "scores" not in found.text
    assert found.text.startswith("not equal: runs.typical-01.jain is 0.")


def test_a_policy_is_handed_in_as_numbers_and_runs_as_from_its_files(sandbox: Sandbox, tmp_path: Path) -> None:
    linear = ROOT / "agents" / "linear"
    entry = entry_of(sandbox, str(linear))
    assert (entry.track, entry.decisions) == ("policy, 1e8 decisions", 39_936_000)
    assert check(sandbox, tmp_path / "linear.json", entry.to_json()).is_equal
    assert entry.policy().content_hash == read_policy(linear).content_hash
    assert "rate_mbps" not in entry.to_json()  # the scenarios of its training decide nothing


@pytest.mark.parametrize(
    ("training", "track"),
    [
        ({"steps": 1_000_000}, "policy, 1e6 decisions"),
        ({"steps": 1_000_001}, "policy, 1e8 decisions"),
        ({"steps": 100_000_001}, "policy, any"),
        ({"steps": 1000, "earlier_steps": 999_000}, "policy, 1e6 decisions"),
        ({"steps": 1000, "earlier_steps": 999_001}, "policy, 1e8 decisions"),
        ({"steps": 1000, "earlier_steps": None}, "policy, any"),
        ({"steps": 1000, "imported": "SB3"}, "policy, any"),
        ({}, "policy, any"),
    ],
)
def test_the_track_follows_from_what_the_policy_records(training: dict[str, Any], track: str) -> None:
    entry = submission(Candidate.of(str(REFERENCE)), **TEXTS)
    agent = {**entry.content["agent"], "training": training}
    content = {**entry.content, "agent": agent}
    hashed = hash_of("policy", content, {})
    assert track_of(Entry(**{**vars(entry), "content": content, "content_hash": hashed})) == track


def test_algorithms_are_published_ones_as_they_are() -> None:
    assert submission(Candidate.of("bbr3"), **TEXTS).track == "published algorithm"
    for what, parameters in (("bbr-backlog", {}), ("vegas", {"alpha_packets": 3.0})):
        with pytest.raises(ValueError, match="no track takes the algorithm"):
            submission(Candidate.of(what, parameters), **TEXTS)
    with pytest.raises(ValueError, match="Python callable"):
        submission(Candidate.of("json:loads"), **TEXTS)


def test_seeds_follow_from_release_and_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before = board.board_seed()
    monkeypatch.setattr("bbrgym.__version__", "9.9.9")
    assert board.board_seed() != before
    monkeypatch.undo()
    monkeypatch.setattr(board, "board_code", lambda: "0" * 16)
    assert board.board_seed() != before


# --- hostile entries ------------------------------------------------------------------------------------------------


def _nested(levels: int) -> bytes:
    return b'{"format": 1, "scores": ' + b"[" * levels + b"]" * levels + b"}"


NOT_ENTRIES = {
    "empty": (b"", "it is not JSON"),
    "no JSON": (b"{'format': 1}", "it is not JSON"),
    "not UTF-8": (b'{"format": "\xff"}', "not text in UTF-8"),
    "a list": (b"[1, 2]", "the entry must be a mapping"),
    "nested": (_nested(100_000), "nested too deeply"),
    "NaN": (b'{"format": NaN}', "finite, got NaN"),
    "infinite": (b'{"format": 1e999}', "finite, got '1e999'"),
    "a number of 10,000 digits": (b'{"format": ' + b"9" * 10_000 + b"}", "digits"),
    "a key twice": (b'{"format": 1, "format": 1}', "the key 'format' is there twice"),
    "a key too many": (b'{"format": 1, "exec": "rm"}', "unknown key 'exec'"),
    "nothing in it": (b'{"format": 1}', "it has no 'release'"),
    "too large": (b" " * (board_entry.MOST_BYTES + 1), "at most 1,048,576 bytes"),
}


@pytest.mark.parametrize("name", NOT_ENTRIES)
def test_what_is_no_entry_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    content, sentence = NOT_ENTRIES[name]
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        read_entry(path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def _set(*path: str, to: Any) -> Callable[[dict[str, Any]], object]:
    def change(plain: dict[str, Any]) -> None:
        for name in path[:-1]:
            plain = plain[name]
        plain[path[-1]] = to

    return change


HOSTILE_ENTRIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another format": (_set("format", to=2), "format must be 1"),
    "another release": (_set("release", to="0.0.1"), "release 0.0.1"),
    "other code": (_set("code", to="0" * 16), "score it again with this one"),
    "a lucky seed": (_set("seed", to=7), "seed 7"),
    "another track": (_set("track", to="policy, 1e6 decisions"), "its track is 'C file of at most 60 lines'"),
    "control letters": (_set("made", "author", to="\x1b[2J"), "printable letters"),
    "a line that a workflow obeys": (_set("made", "author", to="A\n::add-mask::x"), "printable letters"),
    "reversed text": (_set("made", "author", to="A\u202eB"), "printable letters"),
    "no author": (_set("made", "author", to=" "), "author must be a text"),
    "a long text": (_set("made", "command", to="x" * 301), "1 to 300 printable letters"),
    "no licence": (lambda plain: plain["made"].pop("licence"), "made has no 'licence'"),
    "a parameter that is none": (_set("parameters", to={"increase": True}), "must be a finite number"),
    "an unknown parameter": (_set("parameters", to={"nope": 1.0}), "nope"),
    "an unknown kind": (_set("kind", to="python"), "unknown kind 'python'"),
    "a path instead of a file": (_set("content", to={"file": "/etc/passwd"}), "unknown key 'file'"),
    "no text": (_set("content", to={"text": 1}), "of type str"),
    "61 lines": (_set("content", to={"text": "\n" * 61}), "at most 60 lines"),
    "a long line": (_set("content", to={"text": "x" * 133}), "at most 132 letters"),
    "reads a file": (_set("content", to={"text": '#include "/etc/passwd"\n'}), "a # of a C file must begin"),
    "no C": (_set("content", to={"text": "int main(\n"}), "cannot be compiled"),
    "no controller": (_set("content", to={"text": "const int x = 1;\n"}), "bbrgym_controller"),
    "scores of no shape": (_set("scores", to={"score": 1, "lucky": 1}), "unknown key 'lucky'"),
}


@pytest.mark.parametrize("name", HOSTILE_ENTRIES)
def test_hostile_entries_are_refused_in_a_sentence(name: str, sandbox: Sandbox, aimd: str, tmp_path: Path) -> None:
    change, sentence = HOSTILE_ENTRIES[name]
    path = tmp_path / "mine.json"
    text = json.dumps(json.loads(aimd))
    with pytest.raises(ValueError, match=re.escape(sentence)):
        check(sandbox, path, changed(text, change, is_hashed="content" in json.loads(text)))
    (found,) = board.check_entries([path], sandbox)
    assert not found.is_equal
    assert found.line.startswith(f"{path}: refused: ")
    assert "\n" not in found.line


def test_a_wrong_hash_is_refused(sandbox: Sandbox, aimd: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="content_hash must be"):
        check(sandbox, tmp_path / "mine.json", changed(aimd, _set("parameters", to={"increase": 2.0}), is_hashed=False))


def test_scores_of_somebody_else_are_refused(sandbox: Sandbox, aimd: str, tmp_path: Path) -> None:
    theirs = entry_of(sandbox, str(ROOT / "examples" / "five.c"))
    found = check(
        sandbox, tmp_path / "mine.json", changed(aimd, _set("scores", to=json.loads(theirs.to_json())["scores"]))
    )
    assert not found.is_equal
    # Beside the entry that they are of, they are not even replayed.
    (tmp_path / "theirs.json").write_text(theirs.to_json())
    with pytest.raises(ValueError, match=r"its runs are those of the entry theirs by A\. Author"):
        check_entry(tmp_path / "mine.json", sandbox)


def test_work_of_somebody_else_is_refused(sandbox: Sandbox, aimd: str, tmp_path: Path) -> None:
    (tmp_path / "first.json").write_text(aimd)
    with pytest.raises(ValueError, match="its content is that of the entry first"):
        check(sandbox, tmp_path / "second.json", changed(aimd, _set("made", "author", to="Somebody else")))
    shipped = entry_of(sandbox, str(REFERENCE)).to_json()
    with pytest.raises(ValueError, match="its runs are those of policy, which the board has already"):
        check(sandbox, tmp_path / "mine.json", shipped)


@pytest.mark.parametrize("name", ["endless loop", "reads a file", "kills its parent"])
def test_code_of_an_entry_is_confined(name: str, sandbox: Sandbox, aimd: str, tmp_path: Path) -> None:
    """It counts as what it does in the sandbox, whatever scores it claims."""
    hostile = Path(write_hostile(tmp_path, HOSTILE[name])).read_text()
    text = "\n".join(line for line in hostile.splitlines() if "fcntl" not in line and "signal.h" not in line)
    with pytest.raises(ValueError, match="a # of a C file must begin"):
        check_c_text(hostile)
    allowed = re.sub(
        r"#include <unistd\.h>\n", "int open(const char *, int, ...);\nint getppid(void);\n#define O_RDONLY 0\n", text
    )
    allowed = allowed.replace("int kill(pid_t, int);", "int kill(int, int);")
    found = check(sandbox, tmp_path / "mine.json", changed(aimd, _set("content", to={"text": allowed})))
    assert not found.is_equal
    assert found.score == 0.0


def test_what_would_run_when_a_file_is_loaded_is_refused(sandbox: Sandbox, aimd: str, tmp_path: Path) -> None:
    text = AIMD.read_text() + CONSTRUCTOR
    with pytest.raises(ValueError, match="__attribute__"):
        check(sandbox, tmp_path / "mine.json", changed(aimd, _set("content", to={"text": text})))
    assert not (Path.cwd() / "beside.txt").exists()


def _weights(shape: list[int], content: bytes) -> dict[str, Any]:
    return {"shape": shape, "float32": base64.b64encode(content).decode()}


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ({}, "at least one layer"),
        ({"layer.0.weight": _weights([2, 2], b"\0" * 4)}, "does not fit its shape"),
        ({"layer.0.weight": _weights([10**9, 10**9], b"")}, "the shape of"),
        ({"layer.0.weight": {"shape": [1], "float32": "no base64"}}, "is not base64"),
        ({"layer.0.weight": _weights([1, 1], b"\0" * 4)}, "is missing"),
        ({"layer.0.weight": _weights([1, 1], np.float32("nan").tobytes())}, "is missing"),
        ({"../../x": _weights([1], b"\0" * 4)}, "at least one layer"),
    ],
)
def test_weights_that_are_none_are_refused(weights: dict[str, Any], sentence: str) -> None:
    entry = submission(Candidate.of(str(REFERENCE)), **TEXTS)
    text = changed(entry.to_json(), _set("content", "weights", to=weights))
    with pytest.raises(ValueError, match=sentence):
        parse_entry(text.encode())


@pytest.mark.parametrize("spec", [{}, {"observation": {}, "action": {}, "env": {}}, None, {"observation": 1}])
def test_agents_that_are_none_are_refused(spec: Any) -> None:
    entry = submission(Candidate.of(str(REFERENCE)), **TEXTS)
    with pytest.raises(ValueError, match=r"spec|layout|has no"):
        parse_entry(changed(entry.to_json(), _set("content", "agent", "spec", to=spec)).encode())


@pytest.mark.parametrize(
    "line",
    [
        '#/**/include "x"',
        '%:include "x"',
        "#include NAME",
        "#import <x>",
        "#inclu\\\nde <x>",
        "??=include <x>",
        'asm("x");',
        '__attribute__((section(".x\\n.incbin \\"x\\""))) static const int x = 1;',
        '[[gnu::section(".x")]] static const int x = 1;',
        '??([gnu::section(".x")]] static const int x = 1;',
    ],
)
def test_a_c_file_reads_no_others_while_it_is_compiled(line: str) -> None:
    with pytest.raises(ValueError, match="C file"):
        check_c_text(line)


def test_examples_keep_the_rules_of_c_files() -> None:
    for path in (ROOT / "examples").glob("*.c"):
        check_c_text(path.read_text())


def test_scores_beside_other_yardsticks_are_of_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {board.board_code.__wrapped__()}
    everyone = board.yardsticks()
    for changed_one in (
        dataclasses.replace(everyone[-1], parameters={"backlog_packets": 5}),
        dataclasses.replace(everyone[-2], policy=str(ROOT / "agents" / "linear")),
    ):
        others = [changed_one if one.name == changed_one.name else one for one in everyone]
        monkeypatch.setattr(board, "yardsticks", lambda others=others: others)
        found.add(board.board_code.__wrapped__())
    assert len(found) == 3


def test_a_pipe_is_no_entry(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.json")
    with pytest.raises(ValueError, match="it is no file"):
        read_entry(tmp_path / "mine.json")
    with pytest.raises(ValueError, match="must match"):
        read_entry(tmp_path / "..json")
    with pytest.raises(ValueError, match=r"must end with \.json"):
        read_entry(tmp_path / "mine.txt")


# --- commands -------------------------------------------------------------------------------------------------------


def test_an_entry_is_written_and_checked_by_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "aimd.json"
    texts = ["--author", "A. Author", "--licence", "MIT", "--made", "by hand"]
    assert main(["score", str(AIMD), "--submit", str(path), *texts]) == 0
    assert f"entry: {path}" in capsys.readouterr().out
    assert main(["board", "check", str(path), str(tmp_path / "missing.json")]) == 1
    out = capsys.readouterr().out
    assert f"{path}: equal: " in out
    assert "missing.json: refused: No such file or directory" in out
    assert main(["board", "check", "--json", str(path)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["entries"]
    assert (found["is_equal"], found["track"]) == (True, "C file of at most 60 lines")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "--submit needs --author"),
        (["--author", "A", "--licence", "MIT"], "--submit needs --made"),
        (["--author", "A\n", "--licence", "MIT", "--made", "x"], "--author must be a text of one line"),
        (["--seed", "1"], "--submit is without --seed"),
        (["--only", "typical-01"], "--submit is without --only"),
        (["--full"], "--submit is without --full"),
    ],
)
def test_bad_submissions_are_refused_before_they_are_scored(
    options: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    assert main(["score", "bbr", "--submit", str(path), *options]) == 2
    assert sentence in capsys.readouterr().err
    assert not path.exists()


def test_tracks_are_listed_with_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "tracks"]) == 0
    out = capsys.readouterr().out
    assert [name for name in TRACKS if f"{name}: " not in out] == []
    assert str(board.board_seed()) in out
    assert main(["board", "check"]) == 2
    assert main(["board", "chekc", "x.json"]) == 2
    assert "did you mean 'check'" in capsys.readouterr().err

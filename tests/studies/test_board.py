"""studies/board.py: what is on the board, in which order, and how it is shown."""

import dataclasses
import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from bbrgym.benchmark.board import TRACKS, submission
from bbrgym.benchmark.board_entry import Entry, Made
from bbrgym.benchmark.candidate import Candidate
from bbrgym.conf import choices
from studies import board
from studies.board import House, Listed, Training
from studies.study import Study

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def entries() -> list[Listed]:
    return board.listed(Study("board").results())


def entry(what: str, value: float, **made: str) -> Entry:
    """An entry with a score that nobody measured."""
    texts = {"author": "A", "licence": "MIT", "command": "by hand"} | made
    estimate = {"value": value, "low": value - 0.1, "high": value + 0.1, "n": 98}
    means = dict.fromkeys(("fair_power", "jain", "utilisation", "delay", "retransmission_rate"), estimate)
    scores = {"score": estimate, "means": means, "harm": dict.fromkeys(("cubic", "bbr"), estimate), "runs": {}}
    return dataclasses.replace(submission(Candidate.of(what), **texts), scores=scores)


def test_all_that_is_here_has_a_place() -> None:
    jobs = board.jobs()
    names = [job.name for job in jobs]
    assert len(set(names)) == len(names)
    assert {"bbr3", "reference", "linear", "five.c", "vegas.c", "aimd.c"} <= {*names}
    assert {job.learner for job in jobs if isinstance(job, Training)} == {*choices("agent")}
    assert all(
        Path(ROOT / job.made).is_file() for job in jobs if isinstance(job, House) and job.made.startswith("docs/")
    )


def test_entries_are_of_one_code_the_best_first(entries: list[Listed]) -> None:
    values = [each.estimate("score").value for each in entries]
    assert values == sorted(values, reverse=True)
    assert len({(each.entry.code, each.entry.seed) for each in entries}) == 1


def test_an_entry_that_was_handed_in_is_listed_by_its_score(tmp_path: Path) -> None:
    results = {name: [{"entry": entry(name, value).to_json()}] for name, value in (("bbr", 0.5), ("cubic", 0.4))}
    theirs = entry(str(ROOT / "examples" / "aimd.c"), 0.45, author="A | B <script>")
    (tmp_path / "mine.json").write_text(theirs.to_json())
    other = dataclasses.replace(theirs, code="0" * 16)
    (tmp_path / "older.json").write_text(other.to_json())
    found = board.listed(results, tmp_path)
    assert [each.name for each in found] == ["bbr", "mine", "cubic"]
    (row,) = [line for line in board.standings(found).splitlines() if "mine" in line]
    assert "[mine](board/entries/mine.json)" in row
    assert r"A \| B \<script>" in row
    table = board.tracks(found)
    assert [line.split(" | ")[2] for line in table.splitlines()[2:]] == ["none yet"] * 3 + ["mine", "bbr"]
    assert len(table.splitlines()) == 2 + len(TRACKS)
    board.picture(found)  # without a policy


def test_a_link_opens_an_entry_in_the_playground() -> None:
    link = board.playground(Listed("bbr3", entry("bbr3", 0.5), is_here=True))
    settings = json.loads(unquote(re.findall(r"#([^)]+)\)", link)[0]))
    assert [flow["algorithm"] for flow in settings["flows"]] == ["bbr3", "bbr3"]
    aimd = entry(str(ROOT / "examples" / "aimd.c"), 0.5)
    assert board.playground(Listed("aimd.c", aimd, is_here=True)) == "-"


def test_texts_of_an_author_are_no_links() -> None:
    theirs = dataclasses.replace(entry("bbr", 0.5), made=Made("A", "MIT", "docs/../x [y](https://z)", "v"))
    assert "](" not in board.made(Listed("mine", theirs, is_here=False)).replace("]\\(", "")

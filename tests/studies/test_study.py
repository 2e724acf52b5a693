"""Studies: every page is what its template makes of kept results, and the command measures what is left."""

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from in_process import ExecutorInThisProcess
from ledger_jobs import NumberedJob, square
from rich.console import Console

from bbrgym.benchmark.ledger import Entry
from bbrgym.envs.engine import EngineError
from studies import __main__ as command
from studies import page, study
from studies.study import Study, names

QUIET = Console(quiet=True)
TEMPLATE = "---\nminutes: 1\n---\n# Squares\n\n{{ squares }}\n"


@pytest.mark.parametrize("name", names())
def test_a_page_is_what_its_template_makes_of_the_kept_results(name: str) -> None:
    made = Study(name)
    assert made.render() == made.page.read_text(encoding="utf-8")
    parts = made.parts()
    assert parts == {path: path.read_text(encoding="utf-8") for path in parts}
    assert set(made.page.with_suffix("").glob("*.md")) == set(parts)


def test_every_page_of_results_is_of_a_study() -> None:
    assert sorted(path.stem for path in page.RESULTS.glob("*.md")) == names()


@pytest.fixture
def squares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Study]:
    """Return what makes the study `squares`, of some numbers and some code."""
    (tmp_path / "squares.md.j2").write_text(TEMPLATE)
    monkeypatch.setattr(study, "ProcessExecutor", lambda workers: _Closing())

    def make(numbers: tuple[int, ...], code: str = "a", template: str = TEMPLATE) -> Study:
        module: Any = types.ModuleType("studies.squares")
        module.jobs = lambda: [NumberedJob(number, code) for number in numbers]
        module.work = square
        module.view = view
        monkeypatch.setitem(sys.modules, "studies.squares", module)
        (tmp_path / "squares.md.j2").write_text(template)
        return Study("squares", folder=tmp_path, pages=tmp_path)

    return make


class _Closing(ExecutorInThisProcess):
    def __exit__(self, *_: object) -> None:
        pass


def view(results: Mapping[str, Any], figure: object) -> Mapping[str, object]:
    return {"squares": ", ".join(str(rows[0]["square"]) for rows in results.values())}


def test_a_study_measures_what_is_left_and_writes_its_page(squares: Callable[..., Study]) -> None:
    made = squares((2, 3))
    with pytest.raises(ValueError, match="2 of 2 jobs are not measured yet"):
        made.render()
    made.measure(QUIET)
    assert squares((2, 3)).left() == []
    more = squares((2, 3, 4))
    assert [job.name for job in more.left()] == ["4"]
    more.measure(QUIET)
    more.write()
    assert more.page.read_text() == "# Squares\n\n4, 9, 16\n"


def test_a_page_can_be_made_of_results_of_other_code_and_the_command_says_so(
    squares: Callable[..., Study], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    squares((2, 3)).measure(QUIET)
    other = squares((2, 3), code="b")
    assert len(other.left()) == 2
    assert other.render() == "# Squares\n\n4, 9\n"
    monkeypatch.setattr(command, "Study", lambda name, agent: other)
    assert command.main(["squares"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "# Squares\n\n4, 9\n"
    assert "2 of 2 results are of other code" in printed.err


def test_a_failed_job_keeps_the_others_and_fails_the_command(
    squares: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = squares((2, -3))
    with pytest.raises(EngineError, match=r"1 of 2 jobs failed.*-3: ValueError: negative"):
        made.measure(QUIET)
    assert [job.name for job in made.left()] == ["-3"]
    monkeypatch.setattr(command, "Study", lambda name, agent: made)
    assert command.main(["squares", "--measure", "--write"]) == 1
    assert not made.page.exists()


def test_a_partial_page_is_made_of_what_is_measured(squares: Callable[..., Study]) -> None:
    squares((2,)).measure(QUIET)
    assert squares((2, 3), template=TEMPLATE.replace("1\n", "1\nis_partial: true\n", 1)).render() == "# Squares\n\n4\n"


def test_results_call_for_further_jobs(squares: Callable[..., Study]) -> None:
    made = squares((2, 3))
    module: Any = sys.modules["studies.squares"]
    module.further = lambda results: [NumberedJob(rows[0]["square"], "a") for rows in results.values()]
    assert [job.name for job in made.left()] == ["2", "3"]
    made.measure(QUIET)
    assert made.left() == []
    assert made.render() == "# Squares\n\n4, 9, 16, 81\n"


def test_a_study_has_further_pages(squares: Callable[..., Study], tmp_path: Path) -> None:
    (tmp_path / "square.md").write_text("# {{ number }}\n")
    made = squares((2, 3), template=TEMPLATE.replace("1\n", "1\npart: square.md\n", 1))
    module: Any = sys.modules["studies.squares"]
    module.parts = lambda results, figure: {name: {"number": rows[0]["square"]} for name, rows in results.items()}
    made.measure(QUIET)
    made.write()
    assert made.parts() == {tmp_path / "squares" / f"{name}.md": f"# {name * name}\n" for name in (2, 3)}
    assert (tmp_path / "squares" / "3.md").read_text() == "# 9\n"


@pytest.mark.parametrize(
    ("made_with", "said"),
    [
        (("A", "A"), "[All results](squares/runs.parquet), made with A."),
        (("B", "A"), "[All results](squares/runs.parquet), made with A; B."),
        (("", "A"), "[All results](squares/runs.parquet), some of them made with A."),
        (("", ""), "[All results](squares/runs.parquet)."),
    ],
)
def test_a_page_says_with_what_its_results_were_made(
    squares: Callable[..., Study], made_with: Sequence[str], said: str
) -> None:
    made = squares((2, 3), template=TEMPLATE + "{{ kept }}\n")
    pairs = zip(made.jobs, made_with, strict=True)
    made.ledger.keep({job.name: Entry(job.code, [{"square": 4}], one) for job, one in pairs})
    assert made.render().splitlines()[-1] == said


def test_only_jobs_with_a_text_in_their_name_are_measured(
    squares: Callable[..., Study], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = squares((12, 25, 32), template=TEMPLATE.replace("1\n", "1\nis_partial: true\n", 1))
    monkeypatch.setattr(command, "Study", lambda name, agent: made)
    assert command.main(["squares", "--measure", "--only", "2"]) == 0
    assert command.main(["squares", "--measure", "--only", "32"]) == 0
    assert [job.name for job in made.left()] == []
    made = squares((12, 25, 32, 40, 41), template=TEMPLATE.replace("1\n", "1\nis_partial: true\n", 1))
    capsys.readouterr()
    assert command.main(["squares", "--measure", "--only", "41"]) == 0
    assert [job.name for job in made.left()] == ["40"]
    assert "144, 625, 1024, 1681" in capsys.readouterr().out


def test_a_text_that_no_job_has_is_refused_and_so_is_one_that_measures_nothing(
    squares: Callable[..., Study], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = squares((2, 3))
    monkeypatch.setattr(command, "Study", lambda name, agent: made)
    assert command.main(["squares", "--measure", "--only", "sac 1"]) == 1
    assert "no job has 'sac 1' in its name; the first of 2 jobs: '2', '3'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(["squares", "--only", "2"])
    assert len(made.left()) == 2


@pytest.mark.parametrize("front", ["minutes: 0", "minutes: 1\nworker: 2", "minutes: 1\nworkers: 0"])
def test_front_matter_is_checked(front: str, tmp_path: Path) -> None:
    (tmp_path / "x.md.j2").write_text(f"---\n{front}\n---\n")
    with pytest.raises(ValueError, match=r"minutes|worker"):
        Study("x", folder=tmp_path)


def test_an_unknown_study_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["queue"])
    assert "unknown study 'queue' (did you mean 'queues'?)" in capsys.readouterr().err

import shutil
from pathlib import Path

import pytest

from studies import results
from studies.results import Page
from studies.study import names


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the pages that were made, of three of which `broken` fails."""
    done: list[str] = []

    def make(name: str) -> bool:
        done.append(name)
        return name != "broken"

    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(results, "make", make)
    monkeypatch.setattr(results, "current_hash", lambda: "one")
    monkeypatch.setattr(results, "PAGES", {"long": Page(9, ()), "broken": Page(2, ()), "short": Page(1, ())})
    monkeypatch.setattr("sys.argv", ["results"])
    for name in results.PAGES:
        marks = f"<!-- begin: {results.MARK} -->\n<!-- end: {results.MARK} -->\n"
        (tmp_path / f"{name}.md").write_text(f"# A page\n\n{marks}", "utf-8")
    return done


def test_the_shortest_come_first_and_a_failure_stops_no_other(made: list[str]) -> None:
    assert results.main() == 1
    assert made == ["short", "broken", "long"]
    stated = {path.stem for path in results.FOLDER.iterdir() if "`one`" in path.read_text("utf-8")}
    assert stated == {"short", "long"}


def test_what_is_made_is_not_made_again_but_by_other_code(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    results.main()
    made.clear()
    results.main()
    assert made == ["broken"]
    made.clear()
    monkeypatch.setattr(results, "current_hash", lambda: "another")
    results.main()
    assert set(made) == {"short", "broken", "long"}


def test_a_page_that_is_asked_for_is_made(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["results", "--only", "long"])
    assert results.main() == results.main() == 0
    assert made == ["long", "long"]


def test_a_list_makes_nothing(
    made: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["results", "--list"])
    assert results.main() == 0
    assert not made
    assert "12 min" in capsys.readouterr().err


def test_every_page_of_results_has_commands() -> None:
    pages = Path(__file__).parents[2].glob("docs/results/*.md")
    assert {page.stem for page in pages} == {*results.PAGES, *names()}
    for name, page in results.PAGES.items():
        assert f"docs/results/{name}.md" in page.commands[-1]


@pytest.mark.parametrize("name", results.PAGES)
def test_every_page_has_a_place_for_its_hash(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(shutil.copy(Path(__file__).parents[2] / f"docs/results/{name}.md", tmp_path))
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    results.stamp(name, "another", 1.0)
    assert "`another`" in page.read_text("utf-8")

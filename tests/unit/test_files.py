"""Atomic writes."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from other_json import OTHER_JSON

from bbrgym.files import (
    check_file,
    check_folder,
    open_folder,
    read_object,
    replace_file,
    sqlite_url,
    write_json,
    write_text,
)


def test_json_has_plain_types_only(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    numbers = np.float32(0.5), np.int64(2), True, np.bool_(False), None
    write_json(path, {1: numbers, "nan": [math.nan, -math.inf, np.float64("nan")]})
    assert path.read_text() == (
        '{\n "1": [\n  0.5,\n  2,\n  true,\n  false,\n  null\n ],\n "nan": [\n  null,\n  null,\n  null\n ]\n}\n'
    )


def test_a_folder_is_tried_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(ValueError, match=r"cannot write into '.*/runs/a/b': '.*/runs' is not a folder; go away"):
        check_folder(tmp_path / "runs" / "a" / "b", "go away")
    with pytest.raises(ValueError, match=r"cannot write into '/proc/a/b': .*; go away"):
        check_folder(Path("/proc/a/b"), "go away")
    check_folder(tmp_path / "a" / "b", "")
    with pytest.raises(ValueError, match="it is a folder"):
        check_file("--rows", tmp_path)
    with pytest.raises(ValueError, match=r"there is no folder '.*/a'"):
        check_file("--rows", tmp_path / "a" / "b")
    check_file("--rows", tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_what_cannot_be_written_is_named_as_the_caller_does(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    for path in (tmp_path / "runs" / "x.json", tmp_path / "nowhere" / "x.json"):
        with pytest.raises(OSError) as error:  # noqa: PT011  # of two kinds
            write_json(path, {})
        assert error.value.filename == str(path)


@pytest.mark.parametrize("text", [*OTHER_JSON, "", "{", "[" * 100_000])
def test_an_object_is_read_or_what_is_wrong_is_said(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"rows": [1], "status": "done", "more": null}')
    assert read_object(path, rows=list, status=str) == {"rows": [1], "status": "done", "more": None}
    path.write_text(text)
    with pytest.raises(ValueError):  # noqa: PT011  # of many kinds
        read_object(path, rows=list, status=str)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    write_text(path, "münch\n")

    def fail(to: Path) -> None:
        to.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        replace_file(path, fail)
    assert path.read_text(encoding="utf-8") == "münch\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("folder", ["what?", "my%20project", "#1", "a b", 'it\'s "it"', "naïve ≤", "a+b@c:d&e={f}\\"])
def test_a_database_is_found_by_its_url_in_any_folder(folder: str, tmp_path: Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    path = tmp_path / folder / "a.db"
    path.parent.mkdir()
    url = sqlite_url(path)
    assert sqlalchemy.make_url(url).database == str(path)
    assert sqlalchemy.make_url(str(sqlalchemy.make_url(url))).database == str(path)
    with sqlalchemy.create_engine(url).begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE t (x INTEGER)"))
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


def test_a_url_needs_the_extra_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(ModuleNotFoundError, match=r"^memory://here needs upath: pip install 'bbrgym\[storage\]'"):
        open_folder("memory://here")

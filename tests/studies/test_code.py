from pathlib import Path

import pytest

from studies import code
from studies.code import SOURCES, code_hash


def test_the_hash_is_of_code_and_not_of_its_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(code, "sources", code.sources.__wrapped__)  # which reads them every time
    source = tmp_path / SOURCES[0] / "bbr.cc"
    source.parent.mkdir(parents=True)
    hashes = []
    for text in ("int gain = 2;\n", "// Twice.\n  // So.\nint gain = 2;\n", "int gain = 3;\n"):
        source.write_text(text, "utf-8")
        hashes.append(code_hash())
    assert hashes[0] == hashes[1] != hashes[2]


def test_every_folder_of_the_hash_has_sources() -> None:
    for folder in SOURCES:
        assert list((Path(__file__).parents[2] / folder).rglob("*.cc")), folder

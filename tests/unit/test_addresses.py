"""Public addresses: one file, and what takes them from it."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from bbrgym import addresses
from bbrgym.addresses import PUBLIC, how_to_install, read_addresses, with_pages
from studies import addresses as study

NONE = dict.fromkeys(PUBLIC, "")
ALL = {name: f"https://{name}.example/" for name in PUBLIC}


def as_text(public: dict[str, str]) -> str:
    return "".join(f"{name} = {json.dumps(address)}\n" for name, address in public.items())


def test_a_bad_file_is_named() -> None:
    assert read_addresses(as_text(ALL)) == ALL
    assert read_addresses(as_text(NONE)) == NONE
    with pytest.raises(ValueError, match="must have repository, package, site, playground, got site"):
        read_addresses('site = ""')
    for name, address in (("package", "ftp://a"), ("site", "https://a")):
        with pytest.raises(ValueError, match=f"{name} must .*{address}"):
            read_addresses(as_text(NONE | {name: address}))


def test_messages_lead_to_the_site_and_say_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "addresses", lambda: NONE)
    assert with_pages("see docs/score.md") == "see docs/score.md"
    assert how_to_install("bbrgym[train]") == "pip install 'bbrgym[train]' (in a checkout: pip install '.[train]')"
    assert how_to_install("torch") == "pip install 'torch'"
    monkeypatch.setattr(addresses, "addresses", lambda: ALL)
    assert with_pages("see docs/results/ids.md.") == "see https://site.example/results/ids.html."
    assert how_to_install("bbrgym[train]") == "pip install 'bbrgym[train]'"


def test_every_file_takes_all_addresses_and_none_stays() -> None:
    for path in study.WRITTEN:
        assert study.written(path, addresses.addresses()) == (study.ROOT / path).read_text()
    public = {path: study.written(path, ALL) for path in study.WRITTEN}
    for name in ("README.md", "docs/index.md"):
        assert all(address in public[name] for address in ALL.values())
    assert "https://repository.example/" in public["pyproject.toml"]
    assert yaml.safe_load(public["CITATION.cff"])["repository-code"] == ALL["repository"]
    first = {name: study.installs(given).splitlines()[2] for name, given in (("none", NONE), ("all", ALL))}
    assert "make setup" in first["none"]
    assert "pip install bbrgym" in first["all"]


def test_what_is_written_can_be_written_again(tmp_path: Path) -> None:
    for path in study.WRITTEN:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copy(study.ROOT / path, tmp_path / path)
        before = (tmp_path / path).read_text()
        (tmp_path / path).write_text(study.written(path, ALL, tmp_path))
        assert study.written(path, addresses.addresses(), tmp_path) == before


def test_a_release_needs_every_address(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(study, "WRITTEN", {})
    monkeypatch.setattr(study, "addresses", lambda: ALL | {"site": ""})
    assert study.main([]) == 0
    assert study.main(["--complete"]) == 1
    assert "missing in src/bbrgym/addresses.toml: site\n" in capsys.readouterr().out

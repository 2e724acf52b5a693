"""The hashes of the code: `bbrgym.benchmark.code`, and what the build writes for it."""

import json
import runpy
from pathlib import Path
from typing import Any

from bbrgym.benchmark.code import code_hash

ROOT = Path(__file__).parents[2]
HASH_OF: Any = runpy.run_path(str(ROOT / "src" / "hash_sources.py"))["hash_of"]


def test_the_hash_of_sources_is_of_code_and_not_of_its_comments(tmp_path: Path) -> None:
    hashes = []
    for place, text in enumerate(
        ("int gain = 2;\n", "// Twice.\n  // So.\n\nint gain = 2;  // really\n", "int gain = 3;\n", "int gain = 2;\n")
    ):
        folder = tmp_path / str(place) / "cc"
        folder.mkdir(parents=True)
        (folder / ("bbr.cc" if place < 3 else "other.cc")).write_text(text, "utf-8")
        hashes.append(HASH_OF(tmp_path / str(place), ["cc"]))
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_the_build_has_hashed_the_sources_of_this_checkout() -> None:
    folders = ["baselines/cc", "baselines/cc/policy"]
    import bbrgym._controllers

    built = json.loads(Path(bbrgym._controllers.__file__).with_name("sources.json").read_text("utf-8"))
    assert built["_controllers"] == HASH_OF(ROOT / "src" / "bbrgym", folders), "run `make setup`"
    assert len(set(built.values())) == len(built) == 4


def test_a_hash_is_of_the_engines_and_of_what_else_is_given() -> None:
    found = [code_hash("native"), code_hash("ns3"), code_hash("native", "ns3"), code_hash("native", also="settings")]
    assert len(set(found)) == len(found)
    assert code_hash({"name": "native", "threads": 1}) == code_hash("native")

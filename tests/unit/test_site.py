"""The documentation site: every page is written and has a place, and what the code says of itself is complete."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import gymnasium
import pytest
import yaml

from bbrgym.baselines import registry
from bbrgym.cli import COMMANDS
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.fields import FLOW_FIELDS, SCENARIO_FIELDS
from bbrgym.envs.observation import FEATURES
from bbrgym.envs.reward import TERMS

SITE = Path(__file__).parents[2] / "docs" / "site"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The script, which has gathered all pages in a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SITE)
        spec = importlib.util.spec_from_file_location("site_build", SITE / "build.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules.pop("reference")
    module.PAGES = tmp_path_factory.mktemp("pages")
    module.gather(is_quick=True)
    return module


def test_every_page_has_one_place_in_the_navigation(build: ModuleType) -> None:
    nav = yaml.safe_load("nav:" + (SITE / "mkdocs.yml").read_text().partition("\nnav:")[2])["nav"]
    placed = list(build._leaves(build.navigation(nav)))
    assert len(placed) == len(set(placed)) > 100
    with pytest.raises(ValueError, match=r"differ in: .*train\.md"):
        build.navigation(["index.md"])


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("columns", {*FLOW_COLUMNS, *LINK_COLUMNS}),
        ("features", {*FEATURES}),
        ("fields", {*FLOW_FIELDS, *SCENARIO_FIELDS}),
        ("rewards", {*TERMS}),
        ("algorithms", {*registry.controllers()}),
        ("cli", {f"bbrgym {name}" for name in COMMANDS}),
    ],
)
def test_reference_names_all_that_there_is(build: ModuleType, page: str, names: set[str]) -> None:
    text = (build.PAGES / "reference" / f"{page}.md").read_text().replace("\\", "")
    assert [name for name in names if name not in text] == []


def test_every_environment_has_a_page(build: ModuleType) -> None:
    ids = {id.removeprefix("bbrgym/") for id in gymnasium.registry if re.match(r"bbrgym/\w+-v1$", id)}
    assert {page.stem for page in (build.PAGES / "environments").glob("*.md")} == ids | {"index"}
    assert "best constant" in (build.PAGES / "environments" / "Duel-v1.md").read_text()


def test_the_playground_of_the_site_links_to_the_site(build: ModuleType) -> None:
    source = (SITE.parents[1] / "playground" / "index.html").read_text("utf-8")
    assert '<meta name="docs" content="../">' in build.with_docs(source)
    with pytest.raises(ValueError, match="make playground"):
        build.with_docs("an older page")

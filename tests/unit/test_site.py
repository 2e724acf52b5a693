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
    assert "Action Space" in (build.PAGES / "environments" / "Duel-v1.md").read_text()


def test_the_playground_of_the_site_links_to_the_site(build: ModuleType) -> None:
    source = (SITE.parents[1] / "playground" / "index.html").read_text("utf-8")
    assert '<meta name="docs" content="../">' in build.with_docs(source)
    with pytest.raises(ValueError, match="make playground"):
        build.with_docs("an older page")


def test_formulas_are_mathml_and_code_stays(build: ModuleType, tmp_path: Path) -> None:
    shown = build.with_formulas(
        "A $x_1$ costs `$5`.\n\n$$a\\qquad\\text{max\\_x}$$\n\n```sh\n$ echo $HOME$\n```\n", SITE
    )
    assert shown.count("<math") == 3  # equations beside each other are two
    assert "`$5`" in shown
    assert "$ echo $HOME$" in shown
    with pytest.raises(ValueError, match=r"\\nosuch"):
        build.with_formulas(r"$$\nosuch{x}$$", SITE)
    (tmp_path / "good.html").write_text("<pre>$$x$$</pre><code>$5</code> <math>x</math>")
    build.check_formulas(tmp_path)
    (tmp_path / "bad.html").write_text("<p>$$x$$</p>")
    with pytest.raises(ValueError, match=r"bad\.html shows a formula"):
        build.check_formulas(tmp_path)


def test_no_page_of_the_site_has_a_formula_in_latex(build: ModuleType) -> None:
    for page in build.PAGES.rglob("*.md"):
        if "source" not in page.parts:
            text = build.CODE.sub("", page.read_text())
            assert "$$" not in text, page


def test_a_word_of_the_glossary_is_linked_where_it_is_used_first(build: ModuleType) -> None:
    text = "# Regret\n\n`regret` of [a regret](x.md), the regret and the regret.\n"
    linked = build.with_words(text, SITE.parent / "results" / "x.md")
    assert linked == text.replace("the regret and", "the [regret](../glossary.md#regret) and")
    text = "The shipped policy, and the shipped policy. A policy.\n"
    assert build.with_words(text, SITE.parent / "x.md") == (
        "The [shipped policy](glossary.md#shipped-policy), and the shipped policy. A [policy](glossary.md#policy).\n"
    )
    record = (build.PAGES / "decisions" / "0011-our-own-ppo.md").read_text()
    assert "#fair-power" in record
    assert "#decision" not in record
    assert 'id="fair-power"' in (build.PAGES / "glossary.md").read_text()
    with pytest.raises(ValueError, match="no entry for 'fair power'"):
        build.with_entries("| word | meaning |\n")


def test_a_list_after_a_paragraph_is_a_list(build: ModuleType) -> None:
    assert build.with_lists("Sources\n* one\n* two\n") == "Sources\n\n* one\n* two\n"
    for same in ("* one\n* two\n", "| a |\n* b\n", "```\na\n* b\n```\n"):
        assert build.with_lists(same) == same


def test_a_notebook_opens_in_colab_where_its_repository_is_public(build: ModuleType) -> None:
    notebook = build.ROOT / "notebooks" / "01_first_flow.ipynb"
    link = build.colab(notebook, "https://github.com/owner/name")
    assert link == (
        "[Open in Colab](https://colab.research.google.com/github/owner/name/blob/main/notebooks/01_first_flow.ipynb)"
    )
    assert build.colab(notebook, "") == build.colab(notebook, "https://example.org/owner/name") == ""


def test_settings_open_in_the_playground_where_the_site_has_one(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "[open](../playground.md#%7B%22seed%22%3A2%7D), [page](../playground.md), [part](../playground.md#files)"
    monkeypatch.setattr(build, "PLAYGROUND", tmp_path / "missing.html")
    assert build.with_played(text, "results/board.md").startswith("[open](../playground.md), [page]")
    monkeypatch.setattr(build, "PLAYGROUND", Path(__file__))
    shown = build.with_played(text, "results/board.md")
    assert shown.startswith(
        '<a href="../playground/index.html#%7B%22seed%22%3A2%7D">open</a>, [page](../playground.md)'
    )
    assert shown.endswith("[part](../playground.md#files)")


def test_the_moving_picture_and_the_scripts_are_in_the_site(build: ModuleType) -> None:
    assert (build.PAGES / "images" / "front.webp").is_file()
    settings = (SITE / "mkdocs.yml").read_text()
    for name in re.findall(r"[\w.]+\.(?:js|css)(?=\])", settings):
        assert (SITE / name).is_file()
        assert f'"{name}"' in (SITE / "build.py").read_text()

"""Build the documentation site in build/docs/site: `make docs`, or `PYTHONPATH=. python docs/site/build.py [--quick]`.

Its pages are those of docs/, the README and its neighbours, the notebooks with what they show, and what the code says
of itself (`reference`). They are gathered in build/docs/pages, where links lead from page to page, and a link to a
source file leads to a page with its text. Zensical then makes the site, and fails on any bad link.
"""

from __future__ import annotations

import argparse
import base64
import fnmatch
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import nbformat
import yaml
from math_core import LatexError, LatexToMathML
from nbclient import NotebookClient
from reference import generated_pages

from bbrgym.addresses import addresses

ROOT: Final = Path(__file__).parents[2]
OUT: Final = ROOT / "build" / "docs"
PAGES: Final = OUT / "pages"
PLAYGROUND: Final = ROOT / "build" / "playground" / "index.html"
"""The page of `make playground`, one file, which becomes a part of the site."""
PLAY: Final = '<a class="md-button md-button--primary" href="playground/index.html">Open the playground</a>'
PLAYED: Final = re.compile(r"\[([^\]]+)\]\([^)\s]*playground\.md#(%7B[^)\s]*)\)")
"""A link of a page that opens settings in the playground: to its documentation, where there is none."""
SETTINGS: Final = Path(__file__).with_name("mkdocs.yml")
WORKER: Final = "worker.js"
FOREIGN_WORKER: Final = re.compile(r"https://[^\s\"']*/iframe-worker/shim")
LOADED_FROM_ELSEWHERE: Final = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="https?:[^>]*|<link\b[^>]*\brel="?(?:stylesheet|icon|preload|preconnect)[^>]*href="https?:[^>]*"""
)
OVERVIEWS: Final = {
    ROOT / "docs" / "algorithms": "reference/algorithms.md",
    ROOT / "conf" / "scenario": "environments/index.md",
}
"""Pages that are made for folders."""
LIST_AFTER_TEXT: Final = re.compile(r"^((?![*#|<>-] |\d+\. |\||<|\s).*\S.*\n)(?=(?:[*-]|1\.) )", re.MULTILINE)
LINK: Final = re.compile(r"(\]\()([^)\s:#]+)(#[^)\s]*)?(\))")
FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
FORMULA: Final = re.compile(r"\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^\s$`][^$`\n]*)\$", re.DOTALL)
"""A formula in LaTeX, as GitHub and notebooks show it, outside of code."""
CODE_OF_HTML: Final = re.compile(r"<(pre|code|script|style|textarea)\b.*?</\1>", re.DOTALL)
DECISIONS: Final = ROOT / "docs" / "decisions"
GLOSSARY: Final = ROOT / "docs" / "glossary.md"
EXPLAINED: Final = (
    "fair power",
    "yardstick",
    "regret",
    "backlog",
    "shipped policy",
    "policy",
    "decision",
    "step",
    "BDP",
    "Jain's index",
)
"""Words of the glossary that are linked where a page uses them first."""
PLAIN_TEXT: Final = re.compile(
    r"(```.*?^```$|`[^`\n]+`|<[^>\n]*>|!?\[[^\]]*\]\([^)\n]*\)|^(?:[#|:<]|    )[^\n]*$|^---\n.*?^---$"
    r"|\$\$.*?\$\$|\$[^\s$][^$\n]*\$)",
    re.MULTILINE | re.DOTALL,
)
"""What is no running text: code, elements, links, headings, tables, settings, formulas."""
PICTURES: Final = {".png", ".webp"}
NOT_TEXT: Final = {".npz", ".parquet", ".pyc", ".so", *PICTURES}
LANGUAGES: Final = {".def": "cpp", ".h": "cpp", ".cc": "cpp", ".py": "python", ".yaml": "yaml", ".c": "c", ".md": "md"}


def main() -> int:
    """Gather the pages and run Zensical; with --quick, notebooks are not run and pictures are not drawn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="neither run notebooks nor draw pictures: a link check")
    is_quick = parser.parse_args().quick
    shutil.rmtree(PAGES, ignore_errors=True)
    gather(is_quick)
    settings = SETTINGS.read_text(encoding="utf-8").partition("\nnav:\n")
    nav = navigation(yaml.safe_load(f"nav:\n{settings[2]}")["nav"])
    public = {"site_url": addresses()["site"], "repo_url": addresses()["repository"]}
    made = {"nav": nav} | {key: address for key, address in public.items() if address}
    (OUT / "mkdocs.yml").write_text(settings[0] + "\n" + yaml.safe_dump(made, sort_keys=False), "utf-8")
    for name in ("extra.css", "sort.js", WORKER):
        shutil.copy(SETTINGS.with_name(name), PAGES)
    zensical = Path(sys.executable).with_name("zensical")
    done = subprocess.run([zensical, "build", "--clean", "--strict", "-f", "mkdocs.yml"], cwd=OUT)
    if done.returncode == 0:
        if PLAYGROUND.is_file():
            folder = OUT / "site" / "playground"
            folder.mkdir()
            (folder / "index.html").write_text(with_docs(PLAYGROUND.read_text("utf-8")), "utf-8")
        keep_at_home(OUT / "site")
        check_formulas(OUT / "site")
    print(OUT / "site" / "index.html")
    return done.returncode


def with_docs(playground: str) -> str:
    """Return the playground with links to the site, whose folder it is in."""
    nowhere = '<meta name="docs" content="">'
    if nowhere not in playground:
        raise ValueError(f"{PLAYGROUND} lacks {nowhere}: build it anew with `make playground`")
    return playground.replace(nowhere, nowhere.replace('""', '"../"'), 1)


def keep_at_home(site: Path) -> None:
    """Make all pages load what they need from the site itself.

    Raises:
        ValueError: a page loads something else from elsewhere.
    """
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        text = FOREIGN_WORKER.sub(os.path.relpath(site / WORKER, path.parent), text)
        if found := LOADED_FROM_ELSEWHERE.search(text):
            raise ValueError(f"{path} loads {found[0]}")
        path.write_text(text, encoding="utf-8")


def check_formulas(site: Path) -> None:
    """Check that every formula is shown as one.

    Raises:
        ValueError: a page has one in LaTeX, outside of its code.
    """
    for path in site.rglob("*.html"):
        text = CODE_OF_HTML.sub("", path.read_text(encoding="utf-8"))
        if path.parent.name != "playground" and (raw := FORMULA.search(text) or re.search(r"\$\$", text)):
            raise ValueError(f"{path} shows a formula in LaTeX: {raw[0][:80]}")


def written_pages() -> dict[Path, str]:
    """Return what a person wrote: the path of each file in the repository, and that of its page in the site."""
    docs = {path: path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    beside = {ROOT / f"{name}.md": f"{name.lower()}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")}
    notebooks = {path: f"tutorials/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")}
    return docs | beside | notebooks


def gather(is_quick: bool) -> None:
    """Write all pages, with links that lead from page to page."""
    pages = written_pages()
    for path, page in sorted(pages.items()):
        if path.suffix == ".ipynb":
            text = notebook_text(path, PAGES / page, is_run=not is_quick)
        else:
            text = path.read_text(encoding="utf-8")
        if page in ("index.md", "playground.md") and PLAYGROUND.is_file():
            text = re.sub(r"\n(?=## |\| )", f"\n{PLAY}\n\n", text, count=1)  # before the first section or table
        text = with_entries(text) if path == GLOSSARY else with_words(text, path)
        text = with_played(text, page)
        write(page, linked(with_lists(with_formulas(text, path)), path, page, pages))
    # Links of what the code says are as those of docs/: from the page's place in the site.
    for page, text in generated_pages(is_quick, PAGES).items():
        write(page, linked(text, ROOT / "docs" / page, page, pages))


def write(page: str, text: str) -> None:
    """Write a page."""
    path = PAGES / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def linked(text: str, path: Path, page: str, pages: dict[Path, str]) -> str:
    """Return the text of a file with links that hold at its place in the site, but for those to nowhere."""

    def replace(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(path.parent / link[2]))
        if target in pages:
            place = pages[target]
        elif target.suffix in PICTURES and target.exists():
            place = target.relative_to(ROOT).as_posix().removeprefix("docs/")
            (PAGES / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(target, PAGES / place)
        elif target in OVERVIEWS:
            place = OVERVIEWS[target]
        elif target.exists() and target.is_relative_to(ROOT):
            place = f"source/{target.relative_to(ROOT)}.md"
            write(place, source_text(target))
        else:
            return link[0]
        return f"{link[1]}{os.path.relpath(place, Path(page).parent)}{link[3] or ''}{link[4]}"

    return sub_outside(FENCE, LINK, replace, text)


def sub_outside(
    code: re.Pattern[str], pattern: re.Pattern[str], replacement: str | Callable[[re.Match[str]], str], text: str
) -> str:
    """Return what `pattern.sub(replacement, text)` does, but for the parts that are code: these stay as they are.

    Args:
        code: a pattern that is one group.
        pattern: what is replaced.
        replacement: as of `re.sub`.
        text: where.
    """
    parts = code.split(text)
    return "".join(part if place % 2 else pattern.sub(replacement, part) for place, part in enumerate(parts))


def with_formulas(text: str, path: Path) -> str:
    """Return the text of a file with its formulas in MathML, which browsers show without a script.

    Raises:
        ValueError: a formula is not valid.
    """
    converter = LatexToMathML()

    def shown(formula: re.Match[str]) -> str:
        latex = formula["block"] or formula["inline"]
        is_block = formula["block"] is not None
        try:
            # Equations beside each other are one element each, so that they go to the next line where there is no room.
            parts = [converter.convert_with_local_state(part, displaystyle=is_block) for part in latex.split(r"\qquad")]
        except LatexError as error:
            raise ValueError(f"{path}: {latex!r}: {error}") from error
        mathml = "".join(parts)
        if is_block:
            return f'<div class="formula">{mathml}</div>'
        # Markdown has a meaning for these in a paragraph, also inside of elements.
        for mark in "_*\\":
            mathml = mathml.replace(mark, f"&#{ord(mark)};")
        return f'<span class="formula">{mathml}</span>'

    return sub_outside(CODE, FORMULA, shown, text)


def with_played(text: str, page: str) -> str:
    """Return the text of a page with links that open settings in the playground, if the site has one."""
    if not PLAYGROUND.is_file():
        place = os.path.relpath("playground.md", Path(page).parent)
        return PLAYED.sub(rf"[\1]({place})", text)
    place = os.path.relpath("playground/index.html", Path(page).parent)
    return PLAYED.sub(rf'<a href="{place}#\2">\1</a>', text)


def anchor(word: str) -> str:
    """Return the anchor of a word of the glossary."""
    return re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")


def with_entries(glossary: str) -> str:
    """Return the glossary with an anchor at each of the words that pages link to.

    Raises:
        ValueError: it has no entry for one of them.
    """
    for word in EXPLAINED:
        if f"\n| {word} |" not in glossary:
            raise ValueError(f"{GLOSSARY} has no entry for {word!r}")
        glossary = glossary.replace(f"\n| {word} |", f'\n| <span id="{anchor(word)}">{word}</span> |')
    return glossary


def with_words(text: str, path: Path) -> str:
    """Return the text of a file with links to the glossary where it first uses a word that is explained there."""
    glossary = os.path.relpath(GLOSSARY, path.parent)
    for word in EXPLAINED:
        if word == "decision" and path.parent == DECISIONS:  # there it is one about the code
            continue
        # Not as a part of a longer one, whose first use has a link of its own.
        longer = "".join(rf"(?<!{one.removesuffix(word)})" for one in EXPLAINED if one.endswith(f" {word}"))
        use = re.compile(rf"(?<![\w/.-]){longer}{word}s?(?![\w/-])", re.IGNORECASE)
        parts = PLAIN_TEXT.split(text)
        for place in range(0, len(parts), 2):
            link = rf"[\g<0>]({glossary}#{anchor(word)})"
            parts[place], count = use.subn(link, parts[place], count=1)
            if count:
                break
        text = "".join(parts)
    return text


def with_lists(text: str) -> str:
    """Return a text whose lists have an empty line before them: GitHub needs none, Python-Markdown does."""
    return sub_outside(FENCE, LIST_AFTER_TEXT, r"\1\n", text)


def source_text(path: Path) -> str:
    """Return a page with the text of a file, or with those of all text files of a folder."""
    found = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    files = [file for file in found if file.suffix not in NOT_TEXT]
    title = f"---\nsearch: {{exclude: true}}\n---\n\n# {path.relative_to(ROOT)}\n"
    return title + "".join(
        ("" if file == path else f"\n## {file.relative_to(path)}\n")
        + f"\n````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text(encoding='utf-8')}\n````\n"
        for file in files
    )


def notebook_text(path: Path, page: Path, is_run: bool) -> str:
    """Return a notebook as a page, with the outputs of its cells if it is run; its pictures are written beside."""
    notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]
    if is_run:
        print(f"runs {path.name}", flush=True)
        folder = OUT / "notebooks"
        folder.mkdir(parents=True, exist_ok=True)
        quiet = ["--log-level=ERROR"]  # else each kernel warns that it listens on this machine's loopback
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=None, resources=resources, extra_arguments=quiet).execute()
    parts, pictures = [], 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                pictures += 1
                picture = page.with_name(f"{page.stem}-{pictures}.png")
                picture.parent.mkdir(parents=True, exist_ok=True)
                picture.write_bytes(base64.b64decode(data["image/png"]))
                parts.append(f"![What the cell above draws]({picture.name})")
            elif "text/html" in data:
                # The site has its own look of tables.
                noise = r'<style.*?</style>|\s*\n\s*| (?:border|class|id|style)="[^"]*"'
                table = re.sub(noise, "", data["text/html"], flags=re.DOTALL)
                parts.append(f'<div class="output">{table}</div>')
            elif "text/markdown" in data:
                parts.append(data["text/markdown"])
            elif "text/plain" in data:
                parts.append(f"```text\n{data['text/plain']}\n```")
    if link := colab(path, addresses()["repository"]):
        title, _, rest = parts[0].partition("\n")
        parts[0] = f"{title}\n\n{link}\n{rest}"
    return "\n\n".join(parts) + "\n"


def colab(notebook: Path, repository: str) -> str:
    """Return a link that opens a notebook in Colab; empty unless the repository is on GitHub."""
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)/?", repository)
    place = notebook.relative_to(ROOT).as_posix()
    address = f"https://colab.research.google.com/github/{found[1]}/blob/main/{place}" if found else ""
    return f"[Open in Colab]({address})" if address else ""


def navigation(entries: Iterable[Any]) -> list[Any]:
    """Return the navigation with pages for patterns.

    Raises:
        ValueError: a page is in no place, or a place has no page.
    """
    pages = sorted(path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*.md"))
    pages = [page for page in pages if not page.startswith("source/")]
    named = set(_leaves(entries))
    free = [page for page in pages if page not in named]

    def expand(entry: Any) -> list[Any]:
        if isinstance(entry, dict):
            ((title, below),) = entry.items()
            return [{title: below if isinstance(below, str) else [one for each in below for one in expand(each)]}]
        return fnmatch.filter(free, entry) if "*" in entry else [entry]

    expanded = [one for entry in entries for one in expand(entry)]
    placed = set(_leaves(expanded))
    if wrong := placed ^ set(pages):
        raise ValueError(f"docs/site/mkdocs.yml and the pages differ in: {', '.join(sorted(wrong))}")
    return expanded


def _leaves(entry: Any) -> Iterable[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for below in entry.values() if isinstance(entry, dict) else entry:
            yield from _leaves(below)


if __name__ == "__main__":
    sys.exit(main())

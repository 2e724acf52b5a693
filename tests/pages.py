"""Pages of the documentation for tests: the commands that they tell readers."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from bbrgym.cli import COMMANDS

ROOT = Path(__file__).parents[1]

_CODE = re.compile(r"^```(?:python|cpp).*?^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(
    r"(?:^(?: {4}|.*run: )(?:\$ )?(bbrgym (?=[a-z])(?:.*\\\n)*.*)|`(bbrgym (?=[a-z])[^`\n]* [^`\n]*)`)", re.MULTILINE
)
"""In an indented block, with the lines that continue it; and with arguments in a sentence or the cell of a table."""
_WHAT = re.compile(r"^\| WHAT \|.*\n((?:\|.*\n)+)", re.MULTILINE)
"""A table of what `bbrgym score` takes."""
_SKETCH = re.compile(r"…|\.\.\.|<\w+>|\[\w+=number|\b(?:WHAT|COMMAND)\b")
"""What a command has that is not complete."""


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the complete commands of README.md, of all pages in docs, and of each command's help, with the page.

    A command is its words after `bbrgym`, without comments.
    """
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))):
        for words in commands_of(path.read_text(encoding="utf-8")):
            yield str(path.relative_to(ROOT)), words
    for command in COMMANDS.values():
        yield from (("help", shlex.split(line)[1:]) for line in command.examples)


def commands_of(text: str) -> list[list[str]]:
    """Return the complete commands of a page."""
    text = _CODE.sub("", text)
    lines = [block or inline for block, inline in _COMMAND.findall(text)]
    for table in _WHAT.findall(text):
        cells = [row.split("|")[1] for row in table.splitlines()[1:]]
        lines += [f"bbrgym score {what}" for cell in cells for what in re.findall(r"`([^`]+)`", cell)]
    whole = [line.replace("\\\n", " ") for line in dict.fromkeys(lines) if not _SKETCH.search(line)]
    return [shlex.split(line, comments=True)[1:] for line in whole]

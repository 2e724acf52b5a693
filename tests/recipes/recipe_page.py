"""The recipes of docs/recipes.md as code to run."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "recipes.md"


class Recipe:
    """A section of the page. Its code runs in the working directory.

    Attributes:
        title: its heading.
        python: its blocks of Python.
        shell: its blocks for the shell.
        files: its blocks that are files, by the name in the line before them: "`train.py`".
    """

    def __init__(self, title: str, text: str) -> None:
        self.title = title
        blocks = re.findall(r"^(?:`([^`\n]+)`\n\n)?```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        self.files = {name: code for name, _, code in blocks if name}
        self.python = [code for name, language, code in blocks if language == "python" and not name]
        self.shell = [code for name, language, code in blocks if language == "sh" and not name]

    def run_python(self, code: str) -> dict[str, Any]:
        """Run a block as a script and return its global names."""
        # A file, because processes that it starts read it too, whatever their working directory.
        script = Path("recipe.py").absolute()
        script.write_text(code, encoding="utf-8")
        return runpy.run_path(str(script), run_name="__main__")

    def run_shell(self, code: str) -> str:
        """Run a block in a shell with the section's files and return what it prints."""
        for name, content in self.files.items():
            Path(name).write_text(content, encoding="utf-8")
        folder = Path(sys.executable).parent
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            env=os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


def recipes() -> dict[str, Recipe]:
    """Return the sections with code, by their headings."""
    _, *sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    parts = (section.partition("\n") for section in sections)
    return {title: Recipe(title, text) for title, _, text in parts if "```" in text}

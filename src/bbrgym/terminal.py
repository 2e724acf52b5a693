"""How wide the text of a command can be."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def make_console() -> Console:
    """Return the console of a command: as wide as the terminal, or as COLUMNS says, else 120 columns."""
    from rich.console import Console  # it takes long, and not every command needs it

    return Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit() else 120)

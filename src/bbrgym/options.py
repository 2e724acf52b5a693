"""The options of a command: each is said once, with its default, and the command's help is made of it."""

from __future__ import annotations

import argparse
from typing import Any


class OptionParser(argparse.ArgumentParser):
    """Parse a command's arguments. Its help adds each option's default to what the option says of itself."""

    def __init__(self, command: str) -> None:
        super().__init__(
            prog=f"bbrgym {command}", formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        """Add an argument; one without a default says in its help what happens without it."""
        if settings.get("nargs") == "*":
            settings.setdefault("default", [])  # or argparse says that it is required
        default = settings.get("default")
        is_told = default is None or isinstance(default, bool | list) or default == argparse.SUPPRESS
        if not is_told:
            settings["help"] += " (default: %(default)s)"
        return super().add_argument(*names, **settings)

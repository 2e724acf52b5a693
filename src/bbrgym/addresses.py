"""Where bbrgym is public: `addresses.toml` is the one place for the addresses of its repository, package and pages."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final

PUBLIC: Final = ("repository", "package", "site", "playground")
"""What has an address."""


@cache
def addresses() -> dict[str, str]:
    """Return the address of each of `PUBLIC`; an empty one is not public yet.

    Raises:
        ValueError: a name is missing or unknown, or an address is not one of https.
    """
    return read_addresses((resources.files("bbrgym") / "addresses.toml").read_text(encoding="utf-8"))


def read_addresses(text: str) -> dict[str, str]:
    """Return the addresses of such a file; see `addresses`."""
    import tomllib  # `import bbrgym` needs no address

    found = tomllib.loads(text)
    if {*found} != {*PUBLIC}:
        raise ValueError(f"addresses.toml must have {', '.join(PUBLIC)}, got {', '.join(found) or 'nothing'}")
    for name, address in found.items():
        if not isinstance(address, str) or not re.fullmatch(r"(https://\S+)?", address):
            raise ValueError(f"{name} must be empty or an address that begins with https://, got {address!r}")
        if name == "site" and address and not address.endswith("/"):
            raise ValueError(f"site must end with a slash, got {address!r}")
    return found


def with_pages(text: str) -> str:
    """Return a message in which pages such as `docs/score.md` are their addresses, where the site has one."""
    base = addresses()["site"]
    return re.sub(r"\bdocs/([\w/-]+)\.md", rf"{base}\1.html", text) if base else text


def how_to_install(what: str) -> str:
    """Return the command that installs `bbrgym[extra]` or another package.

    Where bbrgym is in no package index, its extras come from a checkout.
    """
    extra = re.fullmatch(r"bbrgym(\[.*\])", what)
    if extra is None or addresses()["package"]:
        return f"pip install '{what}'"
    return f"pip install '{what}' (in a checkout: pip install '.{extra[1]}')"

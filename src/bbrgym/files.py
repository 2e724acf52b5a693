"""Files that are written whole or not at all, so that no reader ever sees half of one."""

from __future__ import annotations

import json
import math
import os
import struct
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Final, cast
from urllib.parse import quote, unquote, urlsplit

from bbrgym.checks import as_python
from bbrgym.extras import optional

DAMAGES: Final = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    EOFError,
    RuntimeError,
    MemoryError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)
"""What the standard library, NumPy and code that expects other values raise for a damaged file."""


def damage(error: BaseException) -> str:
    """Return in words what an error of `DAMAGES` says about a file.

    The text of a KeyError is a key only. That of an IndexError, AttributeError or TypeError is about the reader's code.
    """
    if isinstance(error, KeyError):
        return f"it has no {', '.join(map(repr, error.args))}"
    if isinstance(error, LookupError | AttributeError | TypeError):
        return "its content has another layout"
    return str(error).partition("\n")[0] or type(error).__name__


def read_object(path: Path, **types: type | UnionType) -> dict[str, Any]:
    """Return the JSON object in a file, which has these keys with values of these types, and maybe others.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"'{path}' is nested too deeply") from None
    return check_object(content, f"'{path}'", **types)


def check_object(content: Any, what: str, **types: type | UnionType) -> dict[str, Any]:
    """Return what JSON held, if it is an object that has these keys with values of these types, and maybe others.

    Raises:
        ValueError: it is something else; `what` names it.
    """
    if not isinstance(content, dict):
        raise ValueError(f"{what} must be an object, got a {type(content).__name__}")
    for name, kind in types.items():
        if not isinstance(content.get(name), kind):
            wanted = kind if isinstance(kind, UnionType) else kind.__name__
            raise ValueError(f"{what} must have {name!r}, of type {wanted}, got {content.get(name)!r}")
    return content


def open_folder(where: str | Path) -> Path:
    """Return a folder by its path or its URL, such as `s3://bucket/folder`, for any file system that fsspec knows.

    A folder by URL is an `upath.UPath`, which behaves like a `Path`. The functions of this module write to both.

    Raises:
        ModuleNotFoundError: a URL needs the extra `storage`, and the package of its file system.
        ValueError: the URL's file system is unknown.
    """
    if not isinstance(where, str) or "://" not in where:
        return Path(where)
    if where.startswith("file://"):
        return Path(unquote(urlsplit(where).path))
    with optional(where):
        from upath import UPath
    folder = UPath(where)
    folder.fs  # noqa: B018  # fails now if its package is missing
    return cast(Path, folder)


def sqlite_url(path: Path) -> str:
    """Return SQLAlchemy's URL of a SQLite database, whatever characters its path has."""
    # With the driver's name, because MLflow takes what follows `sqlite:///` for a path and makes its folders.
    return f"sqlite+pysqlite:///{quote(str(path.absolute()))}"


def is_local(path: Path) -> bool:
    """Return whether a path is one of this machine's file system, and not a URL's (`open_folder`)."""
    return isinstance(path, Path)


def check_folder(path: Path, way_out: str) -> None:
    """Check that files can be written into a folder of this machine, which need not exist yet. Nothing is left behind.

    Args:
        path: the folder.
        way_out: what to do instead, for the error.

    Raises:
        ValueError: naming the folder and what stands in the way.
    """
    try:
        existing = next(one for one in (path, *path.parents) if one.is_symlink() or one.exists())
        if existing.is_dir():
            with tempfile.TemporaryFile(dir=existing) as trial:
                trial.write(b"0")
            return
        reason = f"'{existing}' is not a folder"
    except OSError as error:
        reason = error.strerror or str(error)
    raise ValueError(f"cannot write into '{path}': {reason}; {way_out}")


def check_file(option: str, path: Path) -> None:
    """Check that a file, which an option names, can be written on this machine; its folder must exist.

    Raises:
        ValueError: naming the option, the file and what stands in the way.
    """
    if path.is_dir():
        raise ValueError(f"{option}: cannot write '{path}': it is a folder")
    if not path.parent.is_dir():
        raise ValueError(f"{option}: cannot write '{path}': there is no folder '{path.parent}'")
    check_folder(path.parent, f"choose a file in another folder for {option}")


def write_text(path: Path, text: str) -> None:
    """Write `text` in UTF-8 in one atomic move."""
    replace_file(path, lambda to: to.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: object) -> None:
    """Write plain types and numpy scalars as JSON in one atomic move; NaN and infinities become null."""
    write_text(path, json_text(content) + "\n")


def json_text(content: object) -> str:
    """Return plain types and numpy scalars as JSON; NaN and infinities become null."""
    return json.dumps(_strict(content), indent=1)


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a file next to `path`, then move it to `path` atomically.

    Storage that is addressed by URL may have no move. There the file is made on this machine, and then stored in one
    request, which stores of objects make visible whole or not at all.

    Args:
        path: the final place. A file that is there is replaced; if `write` fails it stays as it was.
        write: called with the path of the temporary file, which has the same suffix.

    Raises:
        OSError: the file cannot be written; it names `path`.
    """
    if not is_local(path):
        with tempfile.TemporaryDirectory(prefix="bbrgym-") as folder:
            temporary = Path(folder) / path.name
            write(temporary)
            path.write_bytes(temporary.read_bytes())
        return
    temporary = path.with_name(f".{os.getpid()}-{threading.get_ident()}.{path.name}")
    try:
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        if error.filename == str(temporary):
            error.filename = str(path)  # what the caller knows
        raise
    finally:
        with suppress(OSError):  # it is moved, or was never made
            temporary.unlink()


def user_cache(name: str) -> Path:
    """Return the folder of this user's files that can be made again, `~/.cache/bbrgym/<name>`; it may not exist yet.

    `XDG_CACHE_HOME` moves it. It is a folder of temporary files if the user has no home that can be written.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(home) / "bbrgym"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_writable = os.access(folder, os.W_OK)
    except OSError:
        is_writable = False
    return (folder if is_writable else Path(tempfile.gettempdir()) / f"bbrgym-{os.getuid()}") / name


def _strict(content: Any) -> Any:
    """Return the content without what JSON lacks: NaN, infinities, tuples, numpy scalars."""
    if isinstance(content, Mapping):
        return {str(key): _strict(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_strict(value) for value in content]
    content = as_python(content)
    if isinstance(content, bool):
        return content
    if isinstance(content, Integral):
        return int(content)
    if isinstance(content, Real):
        return float(content) if math.isfinite(content) else None
    return content

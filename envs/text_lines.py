"""Text files line by line, compressed or not, in bounded memory."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from typing import Any, BinaryIO, Final

from bbrgym.extras import optional
from bbrgym.files import damage

MOST_BYTES: Final = 100_000_000
"""Of a file, decompressed. Its samples then take some hundred MB."""

_CHUNK_BYTES: Final = 1 << 16
"""What is read at once: a file that is no text is refused after the first chunk."""

_LONGEST_LINE: Final = 1 << 16
"""In characters. JSON may have longer lines."""

_NOT_TEXT: Final = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
"""Control characters, but for those of lines, tabs, pages and colours."""


def read_lines(path: str | PathLike[str]) -> Iterator[str]:
    r"""Yield the lines of a text file without their ends, however they end.

    It can be compressed by gzip, bzip2, xz or (with pyarrow) Zstandard, as its content shows. It is UTF-8, or UTF-16 if
    it begins with its byte order mark. Other bytes become their escapes, such as `\xff`. The path may begin with `~`.

    Args:
        path: the file's.

    Raises:
        ModuleNotFoundError: Zstandard needs pyarrow; some builds of Python lack bzip2 or xz.
        OSError: it cannot be read.
        ValueError: it is no text, too long, or damaged; the message names the file, and the line if there is one.
    """
    number, length, pending = 1, 0, [""]
    is_json: bool | None = None
    for text in _texts(path):
        if is_json is None:
            is_json = text.lstrip().startswith("{")
        if found := _NOT_TEXT.search(text):
            line = number + text.count("\n", 0, found.start())
            raise ValueError(f"{path}:{line}: this is no text file, it has the character {found[0]!r}")
        first, *others = text.split("\n")
        pending.append(first)
        if others:
            yield "".join(pending)
            pending = [others.pop()]
            yield from others
            number += 1 + len(others)
            length = len(pending[0])
        else:
            length += len(first)
        if length > _LONGEST_LINE and not is_json:
            raise ValueError(f"{path}:{number}: a line must have at most {_LONGEST_LINE:,} characters")
    if last := "".join(pending):
        yield last


def _texts(path: str | PathLike[str]) -> Iterator[str]:
    """Yield the text of a file in parts, in which lines end with a line feed."""
    with open(os.path.expanduser(path), "rb") as file:
        name, decompress = next(
            (of for magic, of in _COMPRESSIONS.items() if file.peek(8).startswith(magic)), ("", None)
        )
        stream: Any = decompress(file) if decompress else file
        size = 0 if decompress else os.fstat(file.fileno()).st_size
        decoder: io.IncrementalNewlineDecoder | None = None
        while True:
            try:
                chunk = stream.read(_CHUNK_BYTES)
            except Exception as error:  # each library has its own
                if not decompress:
                    raise
                raise ValueError(f"'{path}' cannot be read: its {name} is damaged: {damage(error)}") from error
            if decoder is None:
                is_utf16 = chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                of_bytes = codecs.getincrementaldecoder("utf-16" if is_utf16 else "utf-8-sig")("backslashreplace")
                decoder = io.IncrementalNewlineDecoder(of_bytes, translate=True)
            yield decoder.decode(chunk, final=not chunk)
            if not chunk:
                return
            size += len(chunk) if decompress else 0
            if size > MOST_BYTES:
                raise ValueError(
                    f"{path}: a file must have at most {MOST_BYTES / 1e6:g} MB when decompressed: keep a part of it"
                )


def _bzip2(file: BinaryIO) -> Any:
    import bz2  # which not every build of Python has

    return bz2.BZ2File(file)


def _xz(file: BinaryIO) -> Any:
    import lzma  # the same

    return lzma.LZMAFile(file)


def _zstandard(file: BinaryIO) -> Any:
    with optional("a file compressed by Zstandard"):
        import pyarrow as pa
    return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")


_COMPRESSIONS: Final[Mapping[bytes, tuple[str, Callable[[Any], Any]]]] = {
    b"\x1f\x8b": ("gzip", lambda file: gzip.GzipFile(fileobj=file)),
    b"BZh": ("bzip2", _bzip2),
    b"\xfd7zXZ\0": ("xz", _xz),
    b"\x28\xb5\x2f\xfd": ("Zstandard", _zstandard),
}
"""By the first bytes of a file: the name of its compression, and what reads it."""

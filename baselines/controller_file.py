"""A congestion controller in one C file (`bbrgym_controller.h`), compiled for the algorithm `file`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bbrgym.files import replace_file, user_cache

HEADER: Final = Path(__file__).parent / "cc" / "bbrgym_controller.h"
"""What a controller in C includes."""

_FAULT_REPORT: Final = HEADER.with_name("fault_report.c")
"""What is compiled into each one, for `line_of`."""

_FLAGS: Final = ("-std=c99", "-O2", "-g1", "-fPIC", "-ffp-contract=off", "-fno-common", "-Wall", "-Wextra")
"""Without fused multiply-add, as the engine itself, so that equal seeds give equal runs on every machine. -g1 keeps the
numbers of lines and changes no code."""

_LINK_FLAGS: Final = ("-shared", "-Wl,-z,relro,-z,now")
"""Tables of pointers are constant after loading, as `_keeps` takes them."""

_NOT_KEPT: Final = (".data.rel.ro", ".init_array", ".fini_array", ".note")
"""How sections begin that are writable in an object file, and hold no variables of a program."""

_SECONDS: Final = 30
_MEBIBYTES: Final = 2048
"""What the compiler may take. A file can make it work for hours."""

_FILE_MEBIBYTES: Final = 32
"""How large a file the compiler may write. A controller has some KiB, with a large table some MiB."""

_STDIN: Final = "<stdin>"
"""What compilers call a file that they read from there."""

_LINE_SECONDS: Final = 10
"""How long addr2line may take; it takes some milliseconds."""

_CACHE_BYTES: Final = 256 * 2**20
"""How much all shared objects in the cache may take; those that have not been used for longest go first."""


def compile_controller(path: Path | str) -> Path:
    """Compile a controller in C with the system's compiler, and return the shared object; cached by its content.

    The file may include `bbrgym_controller.h` and the standard headers, and no other files. It may have no variables
    but constants: all flows of a process would share them. Compiling runs none of its code, loading what is returned
    does. `CC` in the environment names another compiler than `cc`, with arguments if it needs some, as `ccache gcc`.
    The cache has a limit: a file that has not been used for long is compiled again.

    Args:
        path: the file, with the suffix .c. A shared object, with the suffix .so, is returned as it is.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it has another suffix, is not valid C, has such variables, or there is no compiler; the message has
            what it printed.
    """
    source = Path(path).expanduser()
    if source.suffix == ".so":
        return source
    if source.suffix != ".c":
        raise ValueError(f"a controller file must be C and end with .c, got '{source}'")
    if not source.is_file():
        raise FileNotFoundError(f"there is no file '{source}'")
    text = source.read_bytes()
    compiler = _compiler(source)
    command = " ".join([*compiler, *_FLAGS, *_LINK_FLAGS, platform.machine()])
    identity = b"\0".join([text, HEADER.read_bytes(), _FAULT_REPORT.read_bytes(), command.encode()])
    folder = user_cache("controllers") / hashlib.sha256(identity).hexdigest()[:20]
    library = folder / f"{source.stem}.so"
    if library.is_file():
        with contextlib.suppress(OSError):
            os.utime(library, ns=(time.time_ns(), library.stat().st_mtime_ns))  # as the time of the last use
    else:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(library, lambda to: _compile(source, text, compiler, to))
        _drop_oldest(folder.parent, library)
    return library


def line_of(library: Path | str, place: int) -> int | None:
    """Return the line of the C file at an offset in its shared object; None where it is not known.

    It needs addr2line, which comes with gcc.
    """
    if (program := shutil.which("addr2line")) is None:
        return None
    try:
        command = [program, "-e", str(library), hex(place)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=_LINE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None
    found = re.match(rf"(?:.*/)?{_STDIN}:(\d+)", run.stdout)
    return None if found is None else int(found[1])


def content_of(path: Path | str) -> str:
    """Return the SHA-256 of a controller file.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest()


def _compiler(source: Path) -> list[str]:
    """Return the compiler's command, with its path."""
    given = os.environ.get("CC") or "cc"
    if whole := shutil.which(given):  # also a path with blanks
        return [whole]
    try:
        name, *arguments = shlex.split(given)
    except ValueError as error:
        raise ValueError(f"CC must be the command of a C compiler, got {given!r}: {error}") from None
    if found := shutil.which(name):
        return [found, *arguments]
    raise ValueError(f"'{source}' needs a C compiler, and there is no {name!r}: install gcc or clang, or set CC")


def _drop_oldest(folder: Path, newest: Path) -> None:
    """Remove shared objects from the cache until the others have room; never the newest one."""
    found = []
    for path in folder.glob("*/*.so"):
        with contextlib.suppress(OSError):  # another process has removed it
            found.append((path.stat().st_atime_ns, path.stat().st_size, path))
    size = sum(each for _, each, _ in found)
    for _, each, path in sorted(found):
        if size <= _CACHE_BYTES:
            return
        if path != newest:
            with contextlib.suppress(OSError):
                path.unlink()
                path.parent.rmdir()
            size -= each


def _compile(source: Path, text: bytes, compiler: Sequence[str], library: Path) -> None:
    include = f"-I{HEADER.parent}"
    with tempfile.TemporaryDirectory(prefix="bbrgym-") as folder:  # the file's neighbours are not there
        own = Path(folder) / "own.o"
        without_folder = f"-fdebug-prefix-map={folder}=."  # so that equal files give equal shared objects
        flags = [*compiler, *_FLAGS, without_folder]
        _run_compiler(source, [*flags, include, "-x", "c", "-c", "-", "-o", own.name], folder, text)
        if kept := _keeps(own):
            raise ValueError(
                f"'{source}' has variables that all flows share: {', '.join(kept)}. What a controller remembers must "
                "be in its state, and a table must be const"
            )
        output = str(library.absolute())
        _run_compiler(source, [*flags, *_LINK_FLAGS, own.name, str(_FAULT_REPORT), "-o", output, "-lm"], folder)


def _run_compiler(source: Path, command: Sequence[str], folder: str, text: bytes = b"") -> None:
    # The shell limits the compiler and what it starts. Debian's takes one limit at a time; files have blocks of 512.
    limits = {"t": _SECONDS, "v": _MEBIBYTES * 1024, "f": _FILE_MEBIBYTES * 2048}
    limited = "".join(f"ulimit -{name} {value} && " for name, value in limits.items()) + 'exec "$@"'
    try:
        run = subprocess.run(
            ["sh", "-c", limited, "sh", *command],
            input=text,
            capture_output=True,
            cwd=folder,
            timeout=2 * _SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"'{source}' cannot be compiled: the compiler took longer than {_SECONDS} s") from None
    if run.returncode != 0:
        printed = run.stderr.decode(errors="replace").replace(_STDIN, source.name).strip()[:4000]
        if "file size" in printed.lower():  # of SIGXFSZ, in the words of the compiler and of the C library
            printed = f"the compiler may write {_FILE_MEBIBYTES} MiB: tables in the file are too large\n{printed}"
        raise ValueError(f"'{source}' cannot be compiled:\n{printed or f'{command[0]} ended by {run.returncode}'}")


def _keeps(compiled: Path) -> list[str]:
    """Return the names of what an object file can write to, other than the memory that it is given."""
    # Here, because it takes as long as a file needs to be compiled, and every process would wait.
    from elftools.elf.constants import SH_FLAGS
    from elftools.elf.elffile import ELFFile

    with compiled.open("rb") as file:
        if file.read(4) != b"\x7fELF":  # of another system
            return []
        elf = ELFFile(file)
        writable = {
            place: section.name
            for place, section in enumerate(elf.iter_sections())
            if section["sh_flags"] & SH_FLAGS.SHF_WRITE
            and section["sh_flags"] & SH_FLAGS.SHF_ALLOC
            and section["sh_size"]
            and not section.name.startswith(_NOT_KEPT)
        }
        if not writable:
            return []
        symbols = elf.get_section_by_name(".symtab").iter_symbols()
        names = [one.name for one in symbols if one["st_shndx"] in writable and one["st_info"]["type"] != "STT_SECTION"]
        # Variables in a function have a number behind their name.
        return sorted(name.partition(".")[0] for name in names) or sorted(writable.values())

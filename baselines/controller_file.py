"""A congestion controller in one C file (`bbrgym_controller.h`), compiled for the algorithm `file`."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from bbrgym.files import replace_file, user_cache

HEADER: Final = Path(__file__).parent / "cc" / "bbrgym_controller.h"
"""What a controller in C includes."""

_FLAGS: Final = ("-std=c99", "-O2", "-fPIC", "-shared", "-ffp-contract=off", "-Wall", "-Wextra")
"""Without fused multiply-add, as the engine itself, so that equal seeds give equal runs on every machine."""

_SECONDS: Final = 30
_MEBIBYTES: Final = 2048
"""What the compiler may take. A file can make it work for hours."""


def compile_controller(path: Path | str) -> Path:
    """Compile a controller in C with the system's compiler, and return the shared object; cached by its content.

    The file may include `bbrgym_controller.h` and the standard headers, and no other files. Compiling runs none of its
    code, loading what is returned does. `CC` in the environment names another compiler than `cc`.

    Args:
        path: the file, with the suffix .c. A shared object, with the suffix .so, is returned as it is.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it has another suffix, is not valid C, or there is no compiler; the message has what it printed.
    """
    source = Path(path).expanduser()
    if source.suffix == ".so":
        return source
    if source.suffix != ".c":
        raise ValueError(f"a controller file must be C and end with .c, got '{source}'")
    if not source.is_file():
        raise FileNotFoundError(f"there is no file '{source}'")
    text = source.read_bytes()
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        raise ValueError(f"'{source}' needs a C compiler: install gcc or clang, or set CC")
    identity = b"\0".join([text, HEADER.read_bytes(), " ".join([compiler, *_FLAGS, platform.machine()]).encode()])
    folder = user_cache("controllers") / hashlib.sha256(identity).hexdigest()[:20]
    library = folder / f"{source.stem}.so"
    if not library.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(library, lambda to: _compile(source, text, compiler, to))
    return library


def content_of(path: Path | str) -> str:
    """Return the SHA-256 of a controller file.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest()


def _compile(source: Path, text: bytes, compiler: str, library: Path) -> None:
    # The shell limits the compiler and what it starts. Debian's takes one limit at a time.
    limited = f'ulimit -t {_SECONDS} && ulimit -v {_MEBIBYTES * 1024} && exec "$@"'
    include, output = f"-I{HEADER.parent}", str(library.absolute())
    command = ["sh", "-c", limited, "sh", compiler, *_FLAGS, include, "-x", "c", "-", "-o", output, "-lm"]
    with tempfile.TemporaryDirectory(prefix="bbrgym-") as folder:  # the file's neighbours are not there
        try:
            run = subprocess.run(
                command, input=text, capture_output=True, cwd=folder, timeout=2 * _SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"'{source}' cannot be compiled: the compiler took longer than {_SECONDS} s") from None
    if run.returncode != 0:
        printed = run.stderr.decode(errors="replace").replace("<stdin>", source.name).strip()
        raise ValueError(f"'{source}' cannot be compiled:\n{printed[:4000] or f'{compiler} ended by {run.returncode}'}")

"""Write the hash of each extension module's sources: `python hash_sources.py ROOT OUTPUT MODULE=FOLDER,FOLDER …`.

The build runs this. Comments and blank lines do not count, and paths are relative to ROOT, so that the hash is the same
in every checkout and in every wheel of the same code (`bbrgym.benchmark.code`).
"""

import hashlib
import json
import re
import sys
from pathlib import Path

SUFFIXES = (".cc", ".def", ".h")
COMMENT = re.compile(r"^\s*(//.*)?\n|[ \t]+//.*$", re.MULTILINE)


def hash_of(root: Path, folders: list[str]) -> str:
    """Return the hash of the C++ in some folders, subfolders left out."""
    digest = hashlib.sha256()
    for folder in sorted(folders):
        for path in sorted(path for path in (root / folder).iterdir() if path.suffix in SUFFIXES):
            code = COMMENT.sub("", path.read_text(encoding="utf-8"))
            digest.update(f"{folder}/{path.name}\n{code}".encode())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    root, output, *modules = sys.argv[1:]
    hashes = {name: hash_of(Path(root), folders.split(",")) for name, folders in (one.split("=") for one in modules)}
    Path(output).write_text(json.dumps(hashes, indent=1) + "\n", encoding="utf-8")

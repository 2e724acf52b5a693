"""A pickle that shows whether it was executed."""

import os
from pathlib import Path
from typing import Any


class Bomb:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self._path),))

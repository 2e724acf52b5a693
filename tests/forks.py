"""What happens in a fork of this process."""

import os
import traceback
from collections.abc import Callable

import pytest

OF_ANOTHER = r"belongs to process \d+, and this is its fork"
"""The error of what only the process that made it can use."""


def passes_in_fork(check: Callable[[], object]) -> bool:
    """Run a check in a fork of this process, and return whether it raises nothing."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            check()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def refuses(message: str, *uses: Callable[[], object]) -> None:
    """Check that each use raises RuntimeError with this message."""
    for use in uses:
        with pytest.raises(RuntimeError, match=message):
            use()

"""A worker of engine=ns3 that fails in a step, for tests: BBRGYM_FAULT=crash@n, hang@n or garbage@n, n from 1.

`crash` aborts the process as ns-3 does on an error, `hang` never answers, `garbage` answers nonsense.
"""

import os
import sys
import time
from pathlib import Path


def main() -> None:
    """Serve as `worker.main` does, but for the fault."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "envs" / "worker"))
    from start import enter_bare_packages  # type: ignore[import-not-found]

    enter_bare_packages()
    from bbrgym.envs.worker import worker

    kind, _, step = os.environ["BBRGYM_FAULT"].partition("@")
    answers_left = int(step)  # the first one is that of the reset
    answer_of = worker._state

    def faulty(rows: list[float]) -> bytes:
        nonlocal answers_left
        answers_left -= 1
        if answers_left >= 0:
            return answer_of(rows)
        if kind == "crash":
            print("BBRGYM_FAULT: aborting", file=sys.stderr, flush=True)
            os.abort()
        while kind == "hang":
            time.sleep(60)
        return b"\xff" * 7

    worker._state = faulty
    worker.main(sys.argv[1:])


if __name__ == "__main__":
    main()

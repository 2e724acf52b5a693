"""The program that a storm kills as a parent: `python -m stress.victim ENGINE FORM TIMEOUT_S`."""

from __future__ import annotations

import sys
import time

from stress.forms import FORMS

IDLE_S = 0.2
"""How long it does nothing."""


def main(engine: str, form: str, timeout_s: str) -> None:
    """Use an environment, saying each phase as it begins, and last a digest of what it showed."""

    def say(word: str) -> None:
        print(word, flush=True)

    for last in (False, True):
        say("start")
        env = FORMS[form](engine, {"timeout_s": float(timeout_s)})
        env.reset(1)
        say("reset")
        digest = env.rollout(2)
        say("step")
        for _ in range(5):
            env.step()
        say("idle")
        time.sleep(IDLE_S)
        say("close")
        env.close()
        if last:
            say(f"digest {digest}")


if __name__ == "__main__":
    main(*sys.argv[1:])

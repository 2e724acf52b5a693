"""The programs that a storm kills: `python -m stress.victim parent|benchmark|training …`."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from stress.forms import FORMS, STEP_MS

IDLE_S = 0.2
"""How long a parent does nothing."""


def parent(engine: str, form: str, timeout_s: str) -> None:
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


def benchmark(folder: str) -> None:
    """Run or resume a benchmark; print the runs that failed, those that are missing, and a digest of the results."""
    from bbrgym.benchmark.run import run_benchmark

    flows = [{"algorithm": "bbr", "rtt_ms": 10}, {"algorithm": "bbr", "rtt_ms": 20}]
    config = {
        "name": "storm",
        "scenarios": {f"loss {loss}": {"rate_mbps": 6, "duration_s": 0.6, "loss": loss, "flows": flows}
                      for loss in (0.0, 0.01)},
        "competitors": ["bbr", "cubic", "cubic-stock"],
        "seeds": [1, 2],
        "engine": {"name": "ns3", "timeout_s": 30},
        "step_ms": STEP_MS,
        "executor": {"name": "local", "workers": 2, "chunk_s": 0.001},  # a run in a call: a kill costs no other
    }  # fmt: skip
    result = run_benchmark(config, Path(folder), Console(file=io.StringIO()), has_report=False)
    hashes = sorted({(row["key"], row["trace_hash"]) for _, row in result.results.iterrows()})
    digest = hashlib.sha256(json.dumps(hashes).encode()).hexdigest()[:16]
    print(f"result {len(result.failures)} {len(result.missing)} {digest}", flush=True)


def training(folder: str, engine: str) -> None:
    """Train, or resume the training in the folder; print a digest of the weights at the end."""
    from training import changed  # tests/training.py

    from bbrgym.agents.tracking import read_run
    from bbrgym.agents.train import resume, train

    directory, console = Path(folder), Console(file=io.StringIO())
    print("begun", flush=True)
    steps = {"total_steps": 768, "checkpoint_every": 64}
    record = read_run(directory)
    if record is None:
        train(changed(steps, engine={"name": engine}), directory, console)
    elif record["status"] != "FINISHED":  # else the kill came after the end
        resume(directory, console=console)
    with np.load(directory / "final" / "policy.npz", allow_pickle=False) as arrays:
        digest = hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays.files)))
    print(f"result 0 0 {digest.hexdigest()[:16]}", flush=True)


if __name__ == "__main__":
    {"parent": parent, "benchmark": benchmark, "training": training}[sys.argv[1]](*sys.argv[2:])

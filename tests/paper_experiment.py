"""A small experiment of a paper for tests: its benchmark with runs of the fake engine, and the paper's claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fake_engine import FakeEngine
from omegaconf import OmegaConf

from bbrgym import Scenario, simulate
from bbrgym.benchmark.metrics import MEASURED, measure
from bbrgym.benchmark.plan import Benchmark
from bbrgym.envs.trace_file import save_trace
from bbrgym.files import write_json

PROVENANCE = {
    "command": "bbrgym benchmark experiment=paper/tried",
    "code": "c0de",
    "bbrgym": "0.1.0",
    "ns3": "3.44",
    "python": "3.11.7",
    "machine": "Linux x86_64, 2 cores",
    "git.commit": "abc123",
}
SCENARIOS: dict[str, Any] = {
    "clean": {"rate_mbps": 20, "duration_s": 3, "loss": 0.001, "flows": [{"rtt_ms": 10}, {"rtt_ms": 50}]},
    "lossy": {"rate_mbps": 20, "duration_s": 3, "loss": 0.05, "flows": [{"rtt_ms": 10}, {"rtt_ms": 50}]},
}
COMPETITORS: list[Any] = [
    "bbr",
    "cubic",
    {"name": "calm", "algorithm": "agent", "parameters": {"cwnd_gain": 1.05, "pacing_gain": 0.7}},
]
PAPER: dict[str, Any] = {
    "title": "On <calm> | a study of *calmness*",
    "reference": "J. Calm 1(1), 2020",
    "url": "https://example.org/calm",
    "where": "section 5, figure 1",
    "stated": ["a <b>droptail</b> queue"],
    "inferred": ["3 s | the paper is silent: a test has no more"],
    "figure": {"title": "Figure 2: Jain's index", "x": "loss", "y": ["link_jain"]},
    "published": [
        {"metric": "link_jain", "scenario": "clean", "competitor": "bbr", "is": "above", "value": 0.01},
        {"metric": "link_jain", "scenario": "clean", "competitor": "calm", "is": "above", "value": 2, "wording": "| 2"},
        {
            "metric": "link_jain", "scenario": "lossy", "competitor": "bbr", "is": "above", "value": 3,
            "because": "no index | is above <i>1</i>",
        },
        {"metric": "throughput_mbps[0]", "scenario": "clean", "competitor": "bbr", "value": 2.5},
        {"metric": "link_queue_mean_ms", "scenario": ["clean", "lossy"], "competitor": "bbr", "value": 12},
    ],
}  # fmt: skip


def make_experiment(
    directory: Path,
    *,
    done: slice = slice(None),
    code: str = "c0de",
    paper: dict[str, Any] | None = PAPER,
    **changes: Any,
) -> None:
    """Make a benchmark's directory with the runs `done`, and the claims of its paper.

    Args:
        directory: where it goes: `<group>-<preset>/<name>`; the claims go to `claims/<group>/<name>.yaml` beside.
        done: which of the runs, of the order in which they are planned.
        code: the hash that its provenance has.
        paper: what the paper published; None if the experiment has no paper.
        changes: fields of the benchmark's configuration.
    """
    plain = {
        "name": f"{directory.parent.name}/{directory.name}",
        "scenarios": SCENARIOS,
        "competitors": COMPETITORS,
        "seeds": [1, 2],
        "engine": "fake",
    }
    benchmark = Benchmark.from_dict(plain | changes)
    if paper is not None:
        claims = claims_of(directory) / directory.parent.name.rpartition("-")[0]
        claims.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(paper, claims / f"{directory.name}.yaml")
    runs = benchmark.runs()
    (directory / "runs").mkdir(parents=True)
    write_json(
        directory / "benchmark.json",
        {
            "config": benchmark.to_dict(),
            "runs": [run.names() for run in runs],
            "provenance": PROVENANCE | {"code": code},
            "started": "2026-11-21T07:22:51+00:00",
        },
    )
    write_json(directory / "failures.json", [])
    for run in runs[done]:
        trace = simulate(run.scenario, FakeEngine(), run.seed)
        place = directory / "runs" / run.key
        place.mkdir()
        save_trace(trace, place / "trace.parquet")
        rows = measure(trace, after_s=benchmark.warmup * run.scenario.duration_s)
        write_json(place / "metrics.json", {"trace_hash": trace.hash, "rows": rows})
        write_json(place / "timing.json", {"wall_s": 0.5})


def claims_of(directory: Path) -> Path:
    """Return the folder of the claims that `make_experiment` writes."""
    return directory.parent.parent / "claims"


def made_up_results(
    scenarios: Mapping[str, Scenario], competitors: Sequence[str] = ("bbr", "bbq"), seeds: int = 3
) -> pd.DataFrame:
    """Return results with random numbers, without any run."""
    random = np.random.default_rng(7)
    rows = []
    for seed in range(1, seeds + 1):
        for name, scenario in scenarios.items():
            for competitor in competitors:
                run = dict.fromkeys(MEASURED, 1.0) | {"link_jain": 0.5 + 0.5 * random.random(), "convergence_s": 2.0}
                names = {"scenario": name, "competitor": competitor, "seed": seed, "key": "-", "trace_hash": str(seed)}
                for index, flow in enumerate(scenario.flows):
                    of_flow = {"flow": index, "rtt_ms": flow.rtt_ms, "algorithm": competitor}
                    rows.append(run | of_flow | {"throughput_mbps": 9 + random.random()} | names)
    return pd.DataFrame(rows)

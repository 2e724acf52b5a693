"""Evaluate a trained agent in a scenario, one episode per seed."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from rich.console import Console

from bbrgym.agents.policy import Agent, load_agent
from bbrgym.agents.provenance import run_name
from bbrgym.agents.tracking import Tracker
from bbrgym.baselines import registry
from bbrgym.benchmark.metrics import COMPLETION, MOST_FLOWS_ALONE, measure
from bbrgym.benchmark.tables import Heading, has_several_flows, print_left_out, print_table
from bbrgym.checks import check_keys, check_name, check_number, check_seeds
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.sharing import check_measured
from bbrgym.envs.trace import Trace, simulate
from bbrgym.envs.trace_file import save_trace
from bbrgym.extras import require
from bbrgym.files import replace_file, write_json

LOGGER: Final = logging.getLogger(__name__)

KEYS: Final = (
    "name",
    "agent_path",
    "scenario",
    "other_agents",
    "engine",
    "seeds",
    "warmup",
    "tracking",
    "output_dir",
    "composition",
)


def evaluate(config: Mapping[str, Any], directory: Path, console: Console | None = None) -> pd.DataFrame:
    """Run an agent, print a table, and write the results.

    The directory then has `results.parquet` and `results.json` (what is returned), `traces/seed_<seed>.parquet`
    (`bbrgym.envs.trace_file.load_trace`), `throughput.png`, `delay.png` and `control.png` of the first seed's episode,
    `evaluation_scenarios.json` with the scenario of every seed, and the log of `bbrgym.agents.tracking`.

    Args:
        config: plain types: `agent_path`, `scenario` (or a distribution that each seed draws from), `other_agents` (an
            algorithm for all agent flows but the first, None if the agent drives all), `engine` (`name` and options),
            `seeds`, `warmup` (fraction of the duration that is not measured), `tracking`.
        directory: where the results go.
        console: where the table is shown; None is standard output.

    Returns:
        One row per seed and flow that takes part: `seed`, `reward` (mean per step of an agent's flow, NaN for others),
        and the columns of `bbrgym.benchmark.metrics.measure`.

    Raises:
        ValueError: the configuration is not valid.
        FileNotFoundError: there is no agent.
        ModuleNotFoundError: pyarrow is not installed.
        EngineError: the engine failed.
    """
    console = console or Console()
    agent, spec, seeds, warmup = read_evaluation(config)
    engine = spec.make_engine()
    rows: list[dict[str, Any]] = []
    hashes: set[str] = set()
    try:
        with Tracker.start(
            directory,
            "evaluate",
            run_name(config, str(agent.training.get("algorithm", "agent")), seeds),
            config,
            tags={"agent": agent.content_hash},
            config=config.get("tracking"),
        ) as tracker:
            (directory / "traces").mkdir(exist_ok=True)
            scenarios = {seed: spec.sample(np.random.default_rng(seed)) for seed in seeds}
            tracker.log_scenarios(
                "evaluation episodes",
                "evaluation",
                [{"seed": seed, "scenario": scenario.to_dict()} for seed, scenario in scenarios.items()],
            )
            for seed, scenario in scenarios.items():
                trace = simulate(
                    scenario, engine, seed=seed, step_ms=spec.interval_ms(scenario), policy=agent.policy(scenario)
                )
                hashes.add(trace.hash)
                rewards = episode_rewards(agent, trace)
                every = measure(trace, after_s=warmup * scenario.duration_s)
                measured = [row for row in every if not scenario.flows[row["flow"]].is_absent]
                rows += [{"seed": seed, "reward": rewards[row["flow"]], **row} for row in measured]
                save_trace(trace, directory / "traces" / f"seed_{seed}.parquet")
                if seed == seeds[0]:
                    _draw(trace, tracker)
                first = measured[0]
                metrics = {
                    "reward": float(np.nanmean(rewards)),
                    "utilisation": first["link_utilisation"],
                    "jain": first["link_jain"],
                    "queue_mean_ms": first["link_queue_mean_ms"],
                }
                for name in (*COMPLETION, "link_marks"):
                    if _has_value(first, name):
                        metrics[name] = first[name]
                for row in measured[:MOST_FLOWS_ALONE]:
                    metrics[f"flow{row['flow']}/throughput_mbps"] = row["throughput_mbps"]
                    for name in _OF_FLOWS:
                        if _has_value(row, name):
                            metrics[f"flow{row['flow']}/{name}"] = row[name]
                tracker.log_metrics(metrics, step=seed)
            results = pd.DataFrame(rows)
            replace_file(directory / "results.parquet", results.to_parquet)
            write_json(directory / "results.json", rows)
            tracker.log_artifact(directory / "results.parquet")
            tracker.log_table(results, "results_table.json")
    finally:
        engine.close()
    console.print(_scenario_text(config, spec), highlight=False)
    _print_table(results, console)
    notes = []
    if spec.agents > 1:
        of_runs = [[one.flows[flow] for flow in one.agent_flows] for one in scenarios.values()]
        driven = sorted({sum(not flow.is_absent for flow in flows) for flows in of_runs})
        notes.append(
            f"The agent drives {' or '.join(map(str, driven))} flows. With other_agents=bbr it drives the first one "
            "beside BBR, as in Gymnasium's environments."
        )
    if len(seeds) > len(hashes) == 1:
        notes.append(f"All {len(seeds)} seeds give identical rows: nothing in this scenario is random.")
    for note in notes:
        console.print(note, highlight=False, soft_wrap=True)
    return results


def read_evaluation(config: Mapping[str, Any]) -> tuple[Agent, EpisodeSpec, list[int], float]:
    """Return the agent, its episodes, the seeds and the warm-up; `evaluate` explains the configuration and errors."""
    check_keys("an evaluation", config, KEYS)
    require("an evaluation", "pyarrow")
    agent = load_agent(config["agent_path"])
    spec = EpisodeSpec.from_config(
        {**agent.spec.to_config(), "scenario": config.get("scenario"), "engine": config.get("engine")}
    )
    if (others := config.get("other_agents")) is not None:
        check_name("other_agents", others, registry.controllers())
        spec = dataclasses.replace(spec, scenario=spec.distribution.with_one_agent(others))
    seeds = config.get("seeds", [1])
    seeds = check_seeds(seeds if isinstance(seeds, list | tuple) else [seeds])
    warmup = config.get("warmup", 0.25)
    check_number("warmup", warmup, at_least=0, below=1)
    if not spec.distribution.is_drawn:
        check_measured(spec.distribution.example, warmup)
    return agent, spec, seeds, warmup


def mean_of_episodes(results: pd.DataFrame) -> dict[str, float]:
    """Return the means of `evaluate`'s results.

    They are `reward`, over all flows of the agent, as `eval/reward` of trainings; and of the links `utilisation`,
    `jain`, `queue_mean_ms`, and with finite flows `COMPLETION`, over the episodes.
    """
    of_runs = results.drop_duplicates("seed")
    columns = ["link_utilisation", "link_jain", "link_queue_mean_ms", *(name for name in COMPLETION if name in of_runs)]
    means = of_runs[columns].mean().to_dict()
    return {"reward": results["reward"].mean()} | {str(name).removeprefix("link_"): means[name] for name in columns}


def episode_rewards(agent: Agent, trace: Trace) -> list[float]:
    """Return each flow's mean reward per step, by the reward that the agent was trained with.

    It is NaN for flows that no agent drives. Steps in which a flow takes no part do not count, as in training.
    """
    rewards = []
    for flow in range(len(trace.scenario.flows)):
        if flow not in trace.scenario.agent_flows:
            rewards.append(float("nan"))
            continue
        mean = agent.spec.reward.mean_over_steps(trace.scenario, (flow,), trace.flows, trace.link)
        rewards.append(float(mean[0]))
    return rewards


def _draw(trace: Trace, tracker: Tracker) -> None:
    try:
        from bbrgym.benchmark import plots
    except ModuleNotFoundError as error:
        LOGGER.warning("%s", error)
        return
    title = f"seed {trace.seed}: {trace.scenario.rate_mbps:.3g} Mbit/s"
    tracker.log_figure(plots.throughput_over_time(trace, title=title), "throughput.png")
    tracker.log_figure(plots.delay_over_time(trace, title=title), "delay.png")
    tracker.log_figure(plots.control_over_time(trace, title=title), "control.png")


_OF_FLOWS: Final = {
    "mark_rate": ("marked", ".2%"),
    "app_delay_mean_ms": ("app mean (ms)", ".1f"),
    "app_delay_p99_ms": ("app p99 (ms)", ".1f"),
    "completion_time_ms": ("FCT (ms)", ".1f"),
    "slowdown": ("slowdown", ".2f"),
}
"""Columns that only some flows have, with their heading and form."""


def _has_value(row: Mapping[str, Any], name: str) -> bool:
    return not np.isnan(row.get(name, np.nan))


def _scenario_text(config: Mapping[str, Any], spec: EpisodeSpec) -> str:
    """Return in words what was simulated: the scenario, or the name of the distribution that seeds draw from."""
    name = (config.get("composition") or {}).get("choices", {}).get("scenario")
    scenario = "Scenario" if name is None else f"Scenario {name}"
    if spec.distribution.is_drawn:
        return f"{scenario} in {spec.engine}: each seed draws its own (evaluation_scenarios.json has them)"
    return f"{scenario} in {spec.engine}: {spec.distribution.example.describe()}"


def _print_table(results: pd.DataFrame, console: Console) -> None:
    of_flows = [name for name in _OF_FLOWS if results[name].notna().any()]
    has_several = has_several_flows(results)
    headings = [
        Heading("seed"),
        Heading("flow"),
        Heading("algorithm", kind="name"),
        Heading("base RTT (ms)", rank=3),
        Heading("Mbit/s"),
        Heading("RTT (ms)"),
        Heading("resent", rank=4),
        *(Heading(heading, rank=2) for heading, _ in (_OF_FLOWS[name] for name in of_flows)),
        Heading("reward"),
        Heading("link used", rank=1),
        *([Heading("Jain", rank=1)] if has_several else []),
        Heading("queue (ms)", rank=1),
    ]
    shown = results[results["flow"] < MOST_FLOWS_ALONE].reset_index(drop=True)
    rows = []
    for index, row in shown.iterrows():
        is_first = index == 0 or shown["seed"].iloc[int(str(index)) - 1] != row["seed"]
        link = [
            f"{row['link_utilisation']:.0%}",
            *([f"{row['link_jain']:.3f}"] if has_several else []),
            f"{row['link_queue_mean_ms']:.1f}",
        ]
        rows.append(
            [
                f"{row['seed']}" if is_first else "",
                f"{row['flow']}",
                row["algorithm"],
                f"{row['rtt_ms']:.0f}",
                f"{row['throughput_mbps']:.2f}",
                f"{row['rtt_mean_ms']:.1f}",
                f"{row['retransmission_rate']:.2%}",
                *("" if np.isnan(row[name]) else format(row[name], _OF_FLOWS[name][1]) for name in of_flows),
                "" if np.isnan(row["reward"]) else f"{row['reward']:.3f}",
                *(link if is_first else [""] * len(link)),
            ]
        )
    print_left_out(console, print_table(console, headings, rows), "results.json has them")
    mean = mean_of_episodes(results)
    if len(shown) < len(results):
        console.print(f"The first {MOST_FLOWS_ALONE} flows; results.json has all {results['flow'].max() + 1}.")
    jain = f", Jain {mean['jain']:.3f}" if has_several else ""
    console.print(
        "RTT and queue are means; reward: per step of the whole episode, of the flow.\n"
        f"Mean of {results['seed'].nunique()} episodes: reward {mean['reward']:.3f}, utilisation "
        f"{mean['utilisation']:.0%}{jain}, queue {mean['queue_mean_ms']:.1f} ms.",
        highlight=False,
        soft_wrap=True,
    )
    if "completed" in mean:
        console.print(
            f"Finite flows: {mean['completed']:.1%} completed, FCT mean {mean['fct_mean_ms']:.1f} ms, p50 "
            f"{mean['fct_p50_ms']:.1f} ms, p99 {mean['fct_p99_ms']:.1f} ms, slowdown mean {mean['slowdown_mean']:.2f}, "
            f"p99 {mean['slowdown_p99']:.2f} (means of the episodes).",
            highlight=False,
            soft_wrap=True,
        )

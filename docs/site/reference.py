"""Pages that the code makes of itself: its API, commands, names and bounds, and one page per environment id."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from matplotlib.figure import Figure

from bbrgym import cli, conf
from bbrgym.baselines import registry
from bbrgym.benchmark import plots
from bbrgym.benchmark.markdown import cell, table
from bbrgym.benchmark.metrics import FLOW_METRICS, METRICS
from bbrgym.benchmark.style import COLOURS, empty_figure, name_lines, styled, svg_text
from bbrgym.envs import environment_ids
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.fields import FLOW_FIELDS, SCENARIO_FIELDS, Field
from bbrgym.envs.gym_env import DEFAULT_SCENARIO, BottleneckEnv, one_agent_spec
from bbrgym.envs.named import named_scenario
from bbrgym.envs.observation import DEFAULT_FEATURES, FEATURES
from bbrgym.envs.reward import DEFAULT_TERMS, TERMS
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import simulate
from studies import ids, newcomer
from studies.study import Study

ROOT: Final = Path(__file__).parents[2]
NO_PICTURE: Final = '<svg xmlns="http://www.w3.org/2000/svg"/>'
"""In the place of a picture that is not drawn. Without the name space, a browser shows it as broken."""
API: Final[dict[str, tuple[str, str]]] = {
    "simulation": (
        "`import bbrgym` has the best known of these names: `bbrgym.simulate`, `bbrgym.Scenario`, `bbrgym.Flow`.",
        "envs.trace.simulate envs.scenario.Scenario envs.scenario.Flow envs.trace.Trace baselines.registry.controllers "
        "baselines.registry.defaults envs.engine.Engine envs.engine.make_engine envs.engine.register_engine "
        "envs.trace_file.load_trace envs.trace_file.save_trace",
    ),
    "environments": (
        "[Environments](../environments.md) has an overview.",
        "envs.gym_env.BottleneckEnv envs.vector_env.BottleneckVectorEnv envs.parallel_env "
        "envs.sb3_env.SharedPolicyVecEnv envs.episode_spec.EpisodeSpec envs.distribution.Distribution "
        "envs.observation.Observation envs.action.Action envs.reward.Reward",
    ),
    "agents and benchmarks": (
        "What `bbrgym train`, `evaluate`, `benchmark`, `report` and `score` call.",
        "agents.train.train agents.policy.load_agent agents.policy.Agent benchmark.plan.Benchmark "
        "benchmark.run.run_benchmark benchmark.results.load_benchmark benchmark.report.write_report "
        "benchmark.paper_files.write_paper_files benchmark.tables benchmark.plots benchmark.score.fitness",
    ),
}
"""Pages of the API: what they say first, and the objects in `bbrgym` that they describe."""


def generated_pages(is_quick: bool, folder: Path) -> dict[str, str]:
    """Return the text of each page by its path; pictures are written into the folder, unless it is to be quick."""
    pages = {
        f"reference/api_{name.replace(' ', '_')}.md": _page(
            f"# API: {name}", text, *(f"::: bbrgym.{one}" for one in objects.split())
        )
        for name, (text, objects) in API.items()
    } | {
        "environments/index.md": _environments(),
        "reference/algorithms.md": _algorithms(),
        "reference/cli.md": _commands(),
        "reference/columns.md": _columns(),
        "reference/configuration.md": _configuration(),
        "reference/features.md": _features(),
        "reference/fields.md": _fields(),
        "reference/metrics.md": _metrics(),
        "reference/rewards.md": _rewards(),
    }
    return pages | {
        f"environments/{id.removeprefix('bbrgym/')}.md": _environment(id, arguments, is_quick, folder)
        for id, arguments in environment_ids().items()
    }


def _page(*paragraphs: str) -> str:
    return "\n\n".join(paragraphs) + "\n"


def _table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    return table(headings, [[cell(str(value)) for value in row] for row in rows])


def _algorithms() -> str:
    rows = []
    for name, text in registry.controllers().items():
        page = f"../algorithms/{name}.md"
        parameters = ", ".join(f"{key} = {value:g}" for key, value in registry.defaults(name).items())
        rows.append([f"[{name}]({page})", text, parameters])
    return _page(
        "# Algorithms",
        "Each runs in every engine as `Flow(NAME, parameters={…})`. Its page has equations, sources and deviations.",
        table(["name", "what it is", "parameters and their defaults"], [[r[0], *map(cell, r[1:])] for r in rows]),
        "## Of the engines",
        "They take no parameters.",
        _table(["name", "what it is"], registry.COMPARATORS.items()),
    )


def _commands() -> str:
    parts = [f"## bbrgym {name}\n\n```text\n{cli.help_text(name)}\n```" for name in cli.COMMANDS]
    return _page("# Command line", "What `bbrgym COMMAND --help` prints.", *parts)


def _columns() -> str:
    return _page(
        "# Columns",
        "What an engine measures in every step, in `Trace.rows` and in infos. A count or an average covers the step; a "
        "state is the one at its end. A value that does not exist is NaN.",
        "## Of a flow",
        _table(["column", "meaning"], FLOW_COLUMNS.items()),
        "## Of the link",
        "Traces and infos have them with `link_` in front.",
        _table(["column", "meaning"], LINK_COLUMNS.items()),
    )


def _fields() -> str:
    headings = ["field", "default", "range", "meaning"]
    of_flow, of_scenario = (
        _table(headings, [[name, _default(one), one.range(), one.meaning] for name, one in fields.items()])
        for fields in (FLOW_FIELDS, SCENARIO_FIELDS)
    )
    return _page(
        "# Fields of scenarios",
        "What a `Scenario` and a `Flow` can have, with the same meaning in every engine. A value out of range is "
        "refused by the name of its field. [Scenarios](../scenarios.md) explains them.",
        "## Of a scenario",
        of_scenario,
        "## Of a flow",
        of_flow,
    )


def _default(field: Field) -> str:
    if field.default is None:
        return "null"
    return f"{field.default:g}" if isinstance(field.default, float) else str(field.default or "")


def _features() -> str:
    rows = [
        [
            one.name + (" *" if one.name in DEFAULT_FEATURES else ""),
            one.meaning,
            f"{one.low:g} to {one.high:g}",
            f"{one.neutral:g}",
            ", ".join(one.columns),
        ]
        for one in FEATURES.values()
    ]
    return _page(
        "# Features of observations",
        "`observation.features` chooses among these; the default has those with a star. All are of the agent's own "
        "flow and known to its sender. A value beyond the bounds is clipped. The neutral value takes the place of one "
        "that does not exist, and of all while the flow is inactive. "
        "[features.cc](../../baselines/cc/policy/features.cc) has the formulas.",
        _table(["feature", "meaning", "bounds", "neutral", "columns"], rows),
    )


def _rewards() -> str:
    rows = [[name, f"{one.low:g} to {one.high:g}", one.meaning] for name, one in TERMS.items()]
    default = ", ".join(f"{name} {weight:g}" for name, weight in DEFAULT_TERMS.items())
    return _page(
        "# Terms of the reward",
        f"`reward.terms` gives each term a weight; the default is {default}. The reward of a step is the weighted sum. "
        "More is better: costs are negative. [Reward](api_environments.md) says what the default means.",
        _table(["term", "bounds", "meaning"], rows),
    )


def _metrics() -> str:
    better = {True: "more", False: "less", None: ""}
    rows = [[name, one.description, better[one.is_more_better]] for name, one in (METRICS | FLOW_METRICS).items()]
    return _page(
        "# Metrics of benchmarks",
        "The columns of a benchmark's tables. Those of a flow have its number behind them: `share[0]`.",
        _table(["metric", "meaning", "better"], rows),
    )


def _configuration() -> str:
    parts = [
        "# Configuration",
        "The files of `conf/`. Choose from a group by `group=choice`, and change a value by its path: "
        "`bbrgym train agent=sac agent.gamma=0.98`.",
        f"```yaml\n{(ROOT / 'conf' / 'config.yaml').read_text('utf-8')}```",
    ]
    for group in conf.groups():
        names = [name for name in conf.choices(group) if (ROOT / "conf" / group / f"{name}.yaml").is_file()]
        if names:
            parts.append(f"## {group}")
        for name in names:
            text = (ROOT / "conf" / group / f"{name}.yaml").read_text("utf-8")
            parts.append(f"### {group}={name}\n\n```yaml\n{text}```")
    return _page(*parts)


def _environments() -> str:
    cards = []
    for id, arguments in environment_ids().items():
        short = ids.short(id)
        text = _scenario(arguments.get("scenario"))[0].partition(". ")[0].rstrip(".")
        cards.append(f"* [![]({short}-still.svg)]({short}.md)\n\n    [**{short}**]({short}.md)\n\n    {text}.")
    return _page(
        "# Every id",
        "Each is an environment for `gymnasium.make`. [Environments](../environments.md) says what all have. The "
        "pictures show an episode with `bbr` in the agent's place.",
        '<div class="ids" markdown>',
        *cards,
        "</div>",
        "[What is simple reaches](../results/ids.md) compares the ids.",
    )


def _environment(id: str, arguments: dict[str, Any], is_quick: bool, folder: Path) -> str:
    """Return the page of an id, and draw its pictures."""
    short = ids.short(id)
    name = arguments.get("scenario")
    spec = one_agent_spec(DEFAULT_SCENARIO if name is None else name, "bbr")
    text, plain = _scenario(name)
    gains, terms = spec.action, spec.reward.terms.items()
    flows = "you drive the flow of `agent`"
    if "other_agents" in arguments:
        flows = f"you drive the first flow of `agent`; the others of scenario=`{name}` run `bbr` (`other_agents`)"
    facts = {
        "flows": flows,
        "observation": f"{len(spec.observation.features)} [features](../reference/features.md) of the agent's own flow",
        "action": "two numbers in [-1, 1], for a cwnd_gain of {:g} to {:g} and a pacing_gain of {:g} to {:g}".format(
            *gains.cwnd_gain, *gains.pacing_gain
        ),
        "reward": f"{', '.join(f'{weight:g} {term}' for term, weight in terms)} ([terms](../reference/rewards.md))",
        "step": f"{spec.step_ms:g} ms",
        "episode": f"{spec.max_episode_steps or 'a drawn number of'} steps",
    }
    scenario = spec.sample(np.random.default_rng(1)).with_agents_as("bbr")
    drawn = folder / "environments"
    drawn.mkdir(parents=True, exist_ok=True)
    (drawn / f"{short}-still.svg").write_text(NO_PICTURE if is_quick else svg_text(_still(scenario)), "utf-8")
    parts = [
        f"# {short}",
        text,
        f"```python\nimport bbrgym\nimport gymnasium\nimport torch\n\ntorch.set_num_threads(1)\n"
        f'env = gymnasium.make("{id}")\n```',
        "One thread makes a plain training loop faster: networks this small gain nothing from more "
        "([the fastest loop](../recipes.md#the-fastest-loop)).",
        f"![Throughput of each flow, and the queue, over time]({short}-still.svg)",
        f"An episode with `bbr` in the agent's place. {scenario.describe()}",
        "## What is simple reaches",
        *_reached(id, is_quick, drawn),
        "## Defaults",
        table(["what", "default"], map(list, facts.items())),
        "## The scenario",
        f"```yaml\n{plain}```",
        _docstring(),
    ]
    return _page(*parts)


@styled
def _still(scenario: Scenario) -> Figure:
    """Return a picture of a run: the throughput of the flows above the queue."""
    return plots.over_time({"": simulate(scenario)}, ("throughput_mbps", "link_queue_mean_ms"))


@cache
def _measured(study: str) -> Mapping[str, Any]:
    return Study(study).results()


def _reached(id: str, is_quick: bool, folder: Path) -> list[str]:
    """Return what drives the agent of an id and its mean reward, as a table and as a picture."""
    same = "bbrgym/Default-v1" if id == "bbrgym/Bottleneck-v1" else id
    simple = ids.simple(same, _measured("ids"))
    trainings = {
        job: _measured("newcomer")[job.name]
        for job in newcomer.jobs()
        if job.id == same and job.name in _measured("newcomer")
    }
    rows: list[tuple[str, float, str]] = [
        ("`bbr`", simple.bbr, ""),
        ("the best constant action", *simple.constant),
        ("the best algorithm", *simple.algorithm),
        ("the shipped policy", simple.policy, ""),
        ("the action 0", simple.zero, "0,0"),
        ("random actions", simple.random, ""),
    ]
    ends = newcomer.ends_of(same, trainings)
    for learner, found in ends.items():
        worst_and_best = f"{min(found):.3f} to {max(found):.3f}"
        rows.append((f"{learner} of {newcomer.STEPS[learner]:,} steps", float(np.mean(found)), worst_and_best))
    shown = [[who, f"{reward:.3f}", what] for who, reward, what in rows if np.isfinite(reward)]
    parts = [
        f"The mean reward per step in the same {ids.episodes(same)} episodes ([all ids](../results/ids.md)); 0 is the "
        "best there is. `ppo` and `sac` are Stable-Baselines3's with default settings, `cma` is "
        f"`{newcomer.COMMAND}` ([newcomer](../results/newcomer.md)).",
        table(["who drives", "reward", "which, or worst and best seed"], shown, [1]),
    ]
    if trainings:
        parts.append(newcomer.verdict(simple, ends))
        short = ids.short(id)
        curve = NO_PICTURE if is_quick else svg_text(_curves(simple, trainings))
        (folder / f"{short}-curves.svg").write_text(curve, "utf-8")
        parts.append(f"![Learning curves beside bbr, the best constant and the best algorithm]({short}-curves.svg)")
    else:
        parts.append("No training is measured here.")
    return parts


@styled
def _curves(simple: ids.Simple, trainings: Mapping[newcomer.Training, Any]) -> Figure:
    """Return the learning curves of an id, one line per seed, and dashed lines of what is simple."""
    figure = empty_figure(2.8)
    axes = figure.subplots()
    seen: set[str] = set()
    for colour, learner in zip(COLOURS, newcomer.DRAWN, strict=False):
        for job, rows in trainings.items():
            if job.learner == learner:
                steps, rewards = np.array([(row["decisions"], row["reward"]) for row in rows]).T
                label = learner if learner not in seen else f"_{job.seed}"
                seen.add(learner)
                axes.plot(steps / 1000, rewards, color=colour, linewidth=0.9, label=label)
    lines = {
        "bbr": (simple.bbr, "#000000"),
        f"constant {simple.constant[1]}": (simple.constant[0], "#666666"),
        simple.algorithm[1]: (simple.algorithm[0], "#882255"),
    }
    end = max(newcomer.STEPS[learner] for learner in newcomer.DRAWN) / 1000
    for name, (reward, colour) in lines.items():
        axes.plot([0, end], [reward, reward], "--", color=colour, linewidth=1.0, label=name)
    axes.set(xlabel="thousand steps", ylabel="mean reward per step", xlim=(0, end))
    name_lines(figure)
    return figure


def _docstring() -> str:
    """Return what the environment says of itself, as a part of a page."""
    text = (inspect.getdoc(BottleneckEnv) or "").partition("\nArgs:\n")[0]
    text = re.sub(r"^##", "###", text.partition("\n\n")[2], flags=re.MULTILINE)
    return f"## The environment\n\n{text}"


def _scenario(name: str | None) -> tuple[str, str]:
    """Return what a scenario is in words, and in YAML."""
    file = ROOT / "conf" / "scenario" / f"{name}.yaml"
    if name is not None and file.is_file():
        lines = file.read_text("utf-8").splitlines(keepends=True)
        words = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
        count = next(place for place, line in enumerate(lines) if not line.startswith("#"))
        return " ".join(words[:count]), "".join(lines[count:]).lstrip()
    if name is None:
        return DEFAULT_SCENARIO.describe(), yaml.safe_dump(DEFAULT_SCENARIO.to_dict(), sort_keys=False)
    count = len(named_scenario(name)["choice"])
    return (
        f"One of the {count} scenarios of the experiments of `{name}`, drawn anew in each episode, with the agent in "
        "the place of the first flow and `bbr` in those that the paper varies. "
        "[Papers](../results/papers.md) has the experiments.",
        yaml.safe_dump(named_scenario(name), sort_keys=False),
    )

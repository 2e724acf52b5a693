"""What did the reference policy learn, and is it better than what is simple? `python -m studies.learned`.

In scenarios of its training distribution that no training drew, all agent flows run the policy, a constant backlog, the
rule, the hand-made controller, or a published algorithm. The constant is the best of a grid in other scenarios of the
same distribution; the oracle is the best of the grid in each scenario. `--adopt RUN` first makes a training the
reference: `bbrgym train experiment=reference seed=N`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from bbrgym.agents.card import facts
from bbrgym.agents.policy import load_agent, scripted_agent
from bbrgym.agents.tracking import read_metrics, read_run
from bbrgym.baselines import registry
from bbrgym.baselines.policy_file import REFERENCE, StoredPolicy, read_policy
from bbrgym.benchmark.score import CONSTANT as FIXED
from bbrgym.benchmark.statistics import bootstrap_interval, interquartile_mean
from bbrgym.benchmark.style import COLOURS, MARKERS, Mark, empty_figure, name_lines, styled
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.observation import FEATURES, Observation
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.sharing import Sharing
from bbrgym.envs.trace import simulate
from bbrgym.files import write_json
from bbrgym.interruption import run_interruptible
from bbrgym.processes import ProcessExecutor
from studies import page

MARK: Final = "studies/learned.py"
CARD: Final = Path(__file__).parents[1] / "docs" / "policy.md"
LICENCE: Final = "MIT"
"""Of the reference, as of everything here."""
FIRST: Final = "RUN/final"
"""What the record calls the policy to which a training added, whose folder is a path of one machine."""
COUNT: Final = 96
"""Scenarios that judge, and as many others that choose the constant."""
WARMUP: Final = 0.4
"""As in the search: fraction of an episode that is not measured."""
CHOOSES, JUDGES = 20_270_101, 20_270_102
"""Seeds of the draws; those of trainings are small."""
PACKETS: Final = (1.4, 2.0, 3.0, 4.0, 6.0, 9.0, 13.0, 20.0, 30.0, 50.0)
"""The grid of constant backlogs."""
PUBLISHED: Final = tuple(name for name in registry.controllers() if name not in registry.OURS)
BEHIND: Final = 0.05
"""Fair power that a controller may be behind the best of all in a scenario."""

ACTIONS: Final = ("action of cwnd_gain", "action of pacing_gain")

POLICY, HAND_MADE, RULE, CONSTANT, ORACLE = "policy", "bbr-backlog", "rule", "constant", "oracle constant"
BY_HAND: Final[dict[str, dict[str, Any]]] = {HAND_MADE: {"algorithm": HAND_MADE}, RULE: {}}
"""What flows run, by the name of what was made by hand."""
FAMILIES: Final = {
    "one flow": 1,
    "two to four flows": 4,
    "five to eight flows": 8,
}
"""Kinds of scenarios by the largest number of flows."""
UNEVEN: Final = "jitter, ACKs that leave together"
MOVING: Final = "paths that change"

Powers = npt.NDArray[np.float64]


def family(scenario: Scenario) -> str:
    """Return the name of the kind of a scenario: by what is uncertain on its paths, or else by its number of flows."""
    flows = [flow for flow in scenario.flows if flow.stop_s is None or flow.stop_s > 1.0]
    if any(flow.jitter_ms > 0.5 or flow.ack_aggregation_ms > 0 for flow in flows):
        return UNEVEN
    if any(flow.rtt_schedule for flow in flows):
        return MOVING
    return next(name for name, most in FAMILIES.items() if len(flows) <= most)


def fixed(packets: float) -> dict[str, Any]:
    """Return the flow of a constant backlog: the hand-made controller without what corrects it."""
    return {"algorithm": FIXED.algorithm, "parameters": {**FIXED.parameters, "backlog_packets": packets}}


def competitors() -> dict[str, dict[str, Any]]:
    """Return what flows run, by name; the constants of the grid are not among them."""
    published = {name: {"algorithm": name} for name in PUBLISHED}
    return {POLICY: {"algorithm": POLICY}, **BY_HAND, **published}


def draw(seed: int, count: int) -> list[Scenario]:
    """Return scenarios of the distribution in which the reference was evolved."""
    families, rng = Distribution.of("families"), np.random.default_rng(seed)
    return [families.sample(rng) for _ in range(count)]


def fair_power(scenario: Scenario, flow: Mapping[str, Any], seed: int) -> float:
    """Return the fair power of a scenario whose agent flows run this; without an algorithm, the rule."""
    step_ms = 1e3 * WARMUP * scenario.duration_s
    if not flow:
        rule = _rule()
        return Sharing.of_trace(simulate(scenario, "native", seed, 100.0, rule.policy(scenario)), WARMUP).fair_power
    flows = (replace(each, **flow) if each.algorithm == "agent" else each for each in scenario.flows)
    return Sharing.of_trace(simulate(replace(scenario, flows=tuple(flows)), "native", seed, step_ms), WARMUP).fair_power


@cache
def _rule() -> Any:
    return scripted_agent("backlog", replace(load_agent(REFERENCE).spec, observation=Observation()))


def measure(flows: Mapping[str, Mapping[str, Any]], scenarios: Sequence[Scenario]) -> dict[str, Powers]:
    """Return the fair power of each competitor in each scenario."""
    cases = list(itertools.product(flows, enumerate(scenarios, start=1)))
    with ProcessExecutor() as pool:
        found = pool.map(
            fair_power,
            [scenario for _, (_, scenario) in cases],
            [dict(flows[name]) for name, _ in cases],
            [seed for _, (seed, _) in cases],
        )
        powers = np.fromiter(found, np.float64).reshape(len(flows), len(scenarios))
    return dict(zip(flows, powers, strict=True))


def grid(scenarios: Sequence[Scenario]) -> dict[float, Powers]:
    """Return the fair power of each constant backlog, in packets, in each scenario."""
    found = measure({f"{packets:g}": fixed(packets) for packets in PACKETS}, scenarios)
    return dict(zip(PACKETS, found.values(), strict=True))


def best_constant() -> float:
    """Return the constant backlog, in packets, that is the best of the grid in scenarios that judge nothing."""
    means = {packets: float(powers.mean()) for packets, powers in grid(draw(CHOOSES, COUNT)).items()}
    return max(means, key=lambda packets: means[packets])


def compare() -> tuple[dict[str, Powers], list[Scenario], float]:
    """Return the fair power of all, the scenarios, and the constant that was chosen."""
    best, scenarios = best_constant(), draw(JUDGES, COUNT)
    constants, found = grid(scenarios), measure(competitors(), scenarios)
    return {**found, CONSTANT: constants[best], ORACLE: np.max(list(constants.values()), axis=0)}, scenarios, best


def tables(found: Mapping[str, Powers], scenarios: Sequence[Scenario], packets: float) -> list[str]:
    """Return a table by family, and the policy's regret."""
    families = np.array([family(scenario) for scenario in scenarios])
    names = [*FAMILIES, UNEVEN, MOVING]
    published = max(PUBLISHED, key=lambda name: float(found[name].mean()))
    shown = [POLICY, HAND_MADE, RULE, CONSTANT, ORACLE, published, *("bbr", "bbr3", "cubic")]
    best = np.max([powers for name, powers in found.items() if name != ORACLE], axis=0)
    rows = []
    for name in dict.fromkeys(shown):
        powers = found[name]
        low, high = bootstrap_interval(powers, np.mean)
        rows.append([
            f"{CONSTANT}, {packets:g} packets" if name == CONSTANT else name,
            f"{powers.mean():.3f} [{low:.3f} {high:.3f}]", f"{interquartile_mean(powers):.3f}",
            *(f"{powers[families == of].mean():.3f}" for of in names), str(int((best - powers > BEHIND).sum())),
        ])  # fmt: skip
    heads = [f"{of} ({(families == of).sum()})" for of in names]
    text = page.table(
        ["", "mean [95 %]", "interquartile mean", *heads, f"more than {BEHIND} behind the best"], rows, range(1, 9)
    )
    policy = found[POLICY]
    said = (
        f"In {len(scenarios)} scenarios the policy is the best of all but the oracle in {int((policy >= best).sum())}, "
        f"above the constant in {int((policy > found[CONSTANT]).sum())}, and above the hand-made controller in "
        f"{int((policy > found[HAND_MADE]).sum())}. Its worst scenario has {policy.min():.2f}."
    )
    return [said, text]


def weights(policy: StoredPolicy) -> list[str]:
    """Return the weights of a linear policy, per unit of each feature; nothing for another."""
    if len(policy.network.layers) != 1 or policy.spec["observation"]["history"] != 1:
        return []
    ((matrix, bias),) = policy.network.layers
    return [weights_table(policy.spec["observation"]["features"], matrix, bias)]


def weights_table(inputs: Sequence[str], matrix: npt.NDArray[Any], bias: npt.NDArray[Any]) -> str:
    """Return the weights of what is linear: `matrix` has the shape (2, inputs); inputs begin with a feature's name."""
    meanings = [page.cell(FEATURES[name.partition(",")[0]].meaning) for name in inputs]
    rows = [
        [f"`{name}`", *(f"{value:+.3f}" for value in column), meaning]
        for name, column, meaning in zip(inputs, matrix.T, meanings, strict=True)
    ]
    rows.append(["1", *(f"{value:+.3f}" for value in bias), "the constant"])
    return page.table(["input", *ACTIONS, "meaning"], rows, (1, 2))


def evaluations(run: Path) -> dict[int, dict[str, float]]:
    """Return the metrics of each evaluation by its step; of repeated evaluations, the last."""
    found = {line["step"]: line["metrics"] for line in read_metrics(run) if "eval/reward" in line["metrics"]}
    return dict(sorted(found.items()))


def trainings(folder: Path, name: str = "reference") -> dict[int, Path]:
    """Return the last training of this name of each seed in a folder, by seed."""
    found: list[tuple[str, int, Path]] = []
    for run in folder.iterdir() if folder.is_dir() else ():
        record = read_run(run)
        if record is not None and record["params"].get("name") == name:
            found.append((record["started"], record["params"]["seed"], run))
    return dict(sorted({seed: run for _, seed, run in sorted(found)}.items()))


@styled
def curves(runs: Mapping[int, Path]) -> Figure:
    """Draw the fair power of each training's agent over its decisions."""
    figure = empty_figure(3.2)
    axes = figure.subplots()
    for (seed, run), colour, marker in zip(runs.items(), itertools.cycle(COLOURS), itertools.cycle(MARKERS)):
        steps, powers = zip(*((step, of["eval/fair_power"]) for step, of in evaluations(run).items()), strict=True)
        Mark(colour, marker).line(axes, np.array(steps) / 1e6, powers, label=f"seed {seed}")
    axes.set(xlabel="million decisions", ylabel="fair power", title="Evaluation")
    name_lines(figure)
    return figure


def adopt(run: Path, folder: Path = REFERENCE, card_page: Path = CARD) -> None:
    """Replace the reference by the last agent of a training, its record in `mlflow.json` and its facts on the card."""
    record = read_run(run)
    if record is None:
        raise ValueError(f"'{run}' holds no training: it has no run.json")
    tags = {name: value for name, value in record["tags"].items() if name not in ("host", "folder", "command")}
    params = record["params"]
    commands = [f"bbrgym train experiment={params['name']} seed={params['seed']}"]
    if (adds_to := params["agent"].get("adds_to")) is not None:  # which may be the folder that is replaced
        first = f"bbrgym train experiment=reference seed={read_policy(adds_to).training['seed']}"
        commands = [first, f"{commands[0]} agent.adds_to={FIRST}"]
        record["run_name"] = record["run_name"].replace(adds_to, FIRST)
        params["agent"]["adds_to"] = FIRST
    agent = load_agent(run / "final")
    made_with = {name: value for name, value in tags.items() if name != "seed"}
    agent.training = {**agent.training, "made_with": made_with, "licence": LICENCE}
    agent.save(folder)
    rows = [[name, page.cell(text)] for name, text in facts(agent.stored).items()]
    page.write_block(card_page, "agents/reference", page.table(["the policy's file", ""], rows))
    summary = {
        "commands": commands,
        **{name: record[name] for name in ("experiment", "run_id", "run_name", "status", "started", "ended")},
        "tags": tags,
        "params": {name: params[name] for name in ("agent", "train", "seed")},  # the policy's file has its environment
        "evaluations": [{"step": step, **metrics} for step, metrics in evaluations(run).items()],
    }
    write_json(folder / "mlflow.json", summary)


def main() -> int:
    """Compare, and print the tables; with --write, write them and the learning curves into the page."""
    parser = page.parser(__doc__, MARK)
    parser.add_argument("--runs", default="runs/train", type=Path, help="folder of the trainings")
    parser.add_argument("--adopt", type=Path, metavar="RUN", help="first make a training's last agent the reference")
    options = parser.parse_args()
    if options.adopt is not None:
        adopt(options.adopt)
    blocks = tables(*compare())
    runs = trainings(options.runs)
    if runs:
        last = [list(evaluations(run).values())[-1]["eval/fair_power"] for run in runs.values()]
        said = ", ".join(f"{power:.3f}" for power in last)
        blocks.append(f"Trainings from {len(runs)} random starts end at a fair power of {said} in their evaluations.")
        if options.write is not None:
            blocks[-1] += f"\n\n![Learning curves]({page.write_figure(curves(runs), options.write, 'curves')})"
    blocks += weights(load_agent(REFERENCE).stored)
    page.publish("\n\n".join(blocks), MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("learned", main))

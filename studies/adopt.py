"""Make an agent of a training the reference: `python -m studies.adopt RUN`.

It is the last agent of the training, or the one in a subfolder, as `RUN/best`. This writes agents/reference and the
table of its card, docs/policy.md. Both say which trainings lead to it: one may begin with the policy of another
(`agent.tunes`). It also draws the learning curves of all trainings like these in a folder into
docs/results/learned/curves.png, and keeps where they end, which the page of the policy says.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from hydra.errors import HydraException
from matplotlib.figure import Figure

from bbrgym.agents.callbacks import PROCESSOR
from bbrgym.agents.card import facts
from bbrgym.agents.policy import load_agent
from bbrgym.agents.provenance import override_key
from bbrgym.agents.tracking import read_metrics, read_run
from bbrgym.baselines.policy_file import FOLDERS, REFERENCE, find_policy, read_policy
from bbrgym.benchmark.experiments import compose_experiment
from bbrgym.benchmark.style import COLOURS, MARKERS, Mark, empty_figure, name_lines, styled
from bbrgym.files import read_object, write_json
from bbrgym.output import run_program
from studies import blocks, page

CARD: Final = page.RESULTS.parent / "policy.md"
LICENCE: Final = "MIT"
"""Of the reference, as of everything here."""
RECORD: Final = "mlflow.json"
"""The file of the reference that has its trainings, and as `starts` where others like them end."""
EXPERIMENT: Final = "experiment="
SAID_OTHERWISE: Final = ("seed", "agent.tunes")
INCIDENTAL: Final = ("name", "output_dir", "directory", "agent.executor", "train.resume", "tracking", "hydra")
"""Settings that decide nothing of a policy, or groups of them."""
POWER: Final = "eval/fair_power"


@dataclass(frozen=True)
class Training:
    """A training that leads to a policy.

    Attributes:
        command: what repeats it. It names no folder of a machine: the run of the command before is `RUN`.
        seed: of the training.
        decisions: how many it made; None if it is not known.
        minutes: how many it took by the clock, also between its parts if it was resumed; None if it is not known.
        processor_minutes: how many minutes of processor time it took; None if it is not known.
    """

    command: str
    seed: int
    decisions: int | None = None
    minutes: float | None = None
    processor_minutes: float | None = None

    @classmethod
    def of(cls, run: Path) -> Training:
        """Return the training in a folder."""
        record, spent_s = _record(run), [*_logged(run, PROCESSOR).values()]
        started, ended = (record[name] and datetime.fromisoformat(record[name]) for name in ("started", "ended"))
        return cls(
            command=command_of(record),
            seed=record["params"]["seed"],
            decisions=read_policy(run / FOLDERS[-1]).training["steps"],
            minutes=round((ended - started).total_seconds() / 60, 2) if ended else None,
            processor_minutes=round(spent_s[-1] / 60, 2) if spent_s else None,
        )

    @property
    def text(self) -> str:
        """What the card says, in Markdown."""
        parts = [f"`{self.command}`".replace("|", r"\|")]
        if self.decisions is not None:
            parts.append(f"{self.decisions:,} decisions")
        if self.processor_minutes is not None:
            parts.append(f"{self.processor_minutes:,.1f} processor minutes")
        elif self.minutes is not None:
            parts.append(f"{self.minutes:,.1f} minutes")
        return "; ".join(parts)


def adopt(run: Path, folder: Path = REFERENCE, card_page: Path = CARD) -> None:
    """Replace the reference by an agent of a training, its record in `mlflow.json` and its facts on the card.

    Args:
        run: the training, whose last agent it is; or the folder of one of its agents.
        folder: of the reference.
        card_page: the page of the card.

    Raises:
        ValueError: there is no training, or it is not known how the policy that it tunes was trained.
        FileNotFoundError: there is no such agent, or the policy that it tunes is gone.
    """
    chosen = run if run.name in FOLDERS else run / FOLDERS[-1]
    run = chosen.parent
    record, trainings = _record(run), trainings_to(run)
    tags = {name: value for name, value in record["tags"].items() if name not in ("host", "folder", "command")}
    params = record["params"]
    if (tunes := params["agent"].get("tunes")) is not None:
        record["run_name"] = record["run_name"].replace(tunes, _anonymous(tunes))
        params["agent"]["tunes"] = _anonymous(tunes)
    agent = load_agent(chosen)
    made_with = {name: value for name, value in tags.items() if name != "seed"}
    agent.training = {**agent.training, "made_with": made_with, "licence": LICENCE}
    summary = {
        "trainings": [asdict(training) for training in trainings],
        "agent": chosen.name,
        "experiment": record["experiment"],
        "run_id": record["run_id"],
        "run_name": record["run_name"],
        "status": record["status"],
        "started": record["started"],
        "ended": record["ended"],
        "tags": tags,
        "params": {name: params[name] for name in ("agent", "train", "seed")},  # the policy's file has its environment
        "evaluations": [{"step": step, **metrics} for step, metrics in evaluations(run).items()],
    }
    agent.save(folder)
    write_json(folder / RECORD, summary)
    rows = [[name, page.cell(text)] for name, text in facts(agent.stored).items()]
    rows += [[f"training {number} of {len(trainings)}", each.text] for number, each in enumerate(trainings, start=1)]
    blocks.write_block(card_page, "agents/reference", page.table(["the policy's file", ""], rows))


def trainings_to(run: Path) -> list[Training]:
    """Return the training in a folder and those whose policies it tunes, the first one first.

    Raises:
        ValueError: it is not known how a policy that one of them tunes was trained.
        FileNotFoundError: such a policy is gone.
    """
    own = Training.of(run)
    if (folder := _tuned(run)) is None:
        return [own]
    if (before := _run_of(folder)) is not None:
        return [*trainings_to(before), own]
    if not (folder / RECORD).is_file():
        raise ValueError(
            f"'{run}' tunes the policy in '{folder}', and it is not known how that one was trained: it must be in the "
            f"folder of its training, or have a {RECORD}"
        )
    return [*(Training(**each) for each in read_object(folder / RECORD)["trainings"]), own]


def command_of(record: Mapping[str, Any]) -> str:
    """Return what repeats a training, from its record; also if it was resumed with other settings."""
    params = record["params"]
    given = (params.get("composition") or {}).get("overrides") or [f"{EXPERIMENT}{params['name']}"]
    kept = [each for each in given if not _is_of(each, (*SAID_OTHERWISE, *INCIDENTAL))]
    name = next((each.removeprefix(EXPERIMENT) for each in kept if each.startswith(EXPERIMENT)), None)
    if name is not None:
        # What a resumption changed is not among the overrides.
        asked = _train_settings(
            name, tuple(each for each in kept if _is_of(each, ("train",)) or each.startswith("agent="))
        )
        changed = {key: value for key, value in params["train"].items() if key in asked and value != asked[key]}
        later = [f"train.{key}={'null' if value is None else value}" for key, value in changed.items()]
        kept = [each for each in kept if not _is_of(each, [f"train.{key}" for key in changed])]
        kept += [each for each in later if not _is_of(each, INCIDENTAL)]
    kept.append(f"seed={params['seed']}")
    if (tunes := params["agent"].get("tunes")) is not None:
        kept.append(f"agent.tunes={_anonymous(tunes)}")
    return shlex.join(["bbrgym", "train", *kept])


@cache
def _train_settings(experiment: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    """Return the group `train` of an experiment."""
    try:
        settings: dict[str, Any] = compose_experiment(experiment, overrides)["train"]
    except HydraException as error:
        raise ValueError(f"the training of experiment={experiment} cannot be repeated: {error}") from error
    return settings


def _is_of(override: str, settings: Sequence[str]) -> bool:
    """Return whether an override is of one of the settings, or of one in a group of them."""
    name = override_key(override)
    return any(name == each or name.startswith((f"{each}.", f"{each}/")) for each in settings)


def _record(run: Path) -> dict[str, Any]:
    record = read_run(run)
    if record is None:
        raise ValueError(f"'{run}' holds no training: it has no run.json")
    return record


def _tuned(run: Path) -> Path | None:
    """Return the folder of the policy that a training tunes."""
    tunes = _record(run)["params"]["agent"].get("tunes")
    return None if tunes is None else find_policy(tunes)


def _run_of(policy: Path) -> Path | None:
    """Return the folder of the training whose agent is in this folder."""
    return policy.parent if policy.name in FOLDERS and read_run(policy.parent) is not None else None


def _anonymous(tunes: str) -> str:
    name = find_policy(tunes).name
    return f"RUN/{name if name in FOLDERS else FOLDERS[-1]}"


def _logged(run: Path, name: str) -> dict[int, float]:
    """Return the values of a metric of evaluations by step; of repeated evaluations, the last."""
    return {step: metrics[name] for step, metrics in evaluations(run).items() if name in metrics}


def evaluations(run: Path) -> dict[int, dict[str, float]]:
    """Return the metrics of each evaluation by its step; of repeated evaluations, the last."""
    found = {line["step"]: line["metrics"] for line in read_metrics(run) if "eval/reward" in line["metrics"]}
    return dict(sorted(found.items()))


def stages(run: Path) -> list[Path]:
    """Return the folders of the trainings in the scenarios of the first one that lead to a training, the first first.

    What comes before a policy without a training is not known, and what comes after is in other scenarios, where fair
    power is another one.
    """
    found = [run]
    while (tuned := _tuned(found[0])) is not None and (before := _run_of(tuned)) is not None:
        found.insert(0, before)
    scenarios = [_record(each)["params"]["scenario"] for each in found]
    same = itertools.takewhile(lambda scenario: scenario == scenarios[0], scenarios)
    return found[: len(list(same))]


def alike(run: Path, folder: Path) -> dict[int, list[Path]]:
    """Return the `stages` of the trainings in a folder that are like those of a training, by the seed of the last one.

    Of several with a seed it is the newest.
    """
    names = _names(stages(run))
    found: list[tuple[str, int, list[Path]]] = []
    for each in sorted(folder.iterdir()) if folder.is_dir() else ():
        record = read_run(each)
        if record is None or record["params"].get("name") != names[-1]:
            continue
        try:
            of_each = stages(each)
        except (FileNotFoundError, ValueError):  # the policy that it tunes is gone
            continue
        if of_each[-1] == each and _names(of_each) == names and all(_logged(stage, POWER) for stage in of_each):
            found.append((record["started"], record["params"]["seed"], of_each))
    return dict(sorted({seed: of_each for _, seed, of_each in sorted(found, key=lambda one: one[0])}.items()))


def _names(runs: Sequence[Path]) -> list[str]:
    return [str(_record(run)["params"].get("name")) for run in runs]


def ends(runs: Mapping[int, Sequence[Path]]) -> list[dict[str, float]]:
    """Return for each seed the fair power of the last evaluation, and the processor minutes if they are known."""
    found = []
    for seed, of_seed in runs.items():
        spent_s = [list(_logged(run, PROCESSOR).values())[-1:] for run in of_seed]
        minutes = {"processor_minutes": round(sum(each[0] for each in spent_s) / 60, 1)} if all(spent_s) else {}
        found.append({"seed": seed, "fair_power": list(_logged(of_seed[-1], POWER).values())[-1], **minutes})
    return found


@styled
def curves(runs: Mapping[int, Sequence[Path]]) -> Figure:
    """Draw the fair power in all stages of trainings, over the processor time or, if it is not known, the decisions."""
    figure = empty_figure(3.2)
    axes = figure.subplots()
    is_timed = all(
        _logged(run, PROCESSOR).keys() >= _logged(run, POWER).keys() for of_seed in runs.values() for run in of_seed
    )
    for (seed, of_seed), colour, marker in zip(runs.items(), itertools.cycle(COLOURS), itertools.cycle(MARKERS)):
        spent, powers = [], []
        before = 0.0
        for run in of_seed:
            times_s = _logged(run, PROCESSOR)
            for step, power in _logged(run, POWER).items():
                spent.append(before + (times_s[step] / 60 if is_timed else step / 1e6))
                powers.append(power)
            before = spent[-1]
        Mark(colour, marker).line(axes, spent, powers, label=f"seed {seed}")
    axes.set(xlabel="processor minutes" if is_timed else "million decisions", ylabel="fair power", title="Evaluation")
    name_lines(figure)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Adopt a training, and say what others like it reached."""
    parser = ArgumentParser("python -m studies.adopt", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of the training, or of one of its agents")
    parser.add_argument("--runs", default="runs/train", type=Path, help="folder of all trainings (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        adopt(options.run)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    run = options.run.parent if options.run.name in FOLDERS else options.run
    if runs := alike(run, options.runs):
        page.write_figure(curves(runs), page.RESULTS / "learned.md", "curves")
        write_json(REFERENCE / RECORD, {**read_object(REFERENCE / RECORD), "starts": ends(runs)})
    return 0


if __name__ == "__main__":
    sys.exit(run_program("adopt", main))

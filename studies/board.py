"""Fill the scoreboard: score what is here as entries of `bbrgym score --submit`, and list what was handed in.

Entries of other people are files in docs/results/board/entries, which the workflow `board` has checked. What is here
has no files: its entries are kept as results. Trainings take long and come last; the page has a place for them.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from matplotlib.figure import Figure

from bbrgym.benchmark.board import TRACKS, board_code, submission, with_scores
from bbrgym.benchmark.board_entry import Entry, parse_entry, read_entry
from bbrgym.benchmark.candidate import Candidate, parameter_words
from bbrgym.benchmark.families import VICTIMS
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.plan import find_competitors
from bbrgym.benchmark.sandbox import Sandbox
from bbrgym.benchmark.score import score_candidate, yardsticks
from bbrgym.benchmark.statistics import Estimate
from bbrgym.benchmark.style import COLOURS, Mark, empty_figure, name_points, styled
from bbrgym.envs.engine import describe_engine
from studies import page
from studies.study import PROGRAM

ROOT: Final = Path(__file__).parents[1]
HANDED_IN: Final = ROOT / "docs" / "results" / "board" / "entries"
RUNS: Final = Path("runs/board")
AUTHOR: Final = "The bbrgym authors"
LICENCE: Final = "MIT"
BY_HAND: Final = "by hand"
TEXTS: Final = ("--author", AUTHOR, "--licence", LICENCE, "--made")
SEARCHED: Final = {"target": 4.31, "step": 0.914, "start": 0.612, "loss": 0.997, "pacing": 1.38}
"""What `python examples/search.py 60` found for five.c (docs/score.md)."""


@dataclass(frozen=True)
class House:
    """Something that is here.

    Attributes:
        name: on the board.
        what: as of `bbrgym score`, from the root of the repository.
        made: how.
        parameters: of a C file.
    """

    name: str
    what: str
    made: str
    parameters: Mapping[str, float] = field(default_factory=dict)

    def candidate(self) -> Candidate:
        """Return what is scored."""
        path = ROOT / self.what
        return Candidate.of(str(path) if path.exists() else self.what, self.parameters)

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        entry = submission(self.candidate(), author=AUTHOR, licence=LICENCE, command=self.made)
        return _hash(entry.content_hash, self.made)

    @property
    def command(self) -> str:
        """The command that makes its entry."""
        words = ["bbrgym", "score", self.what, *parameter_words(self.parameters)]
        return shlex.join([*words, "--submit", f"{self.name}.json", *TEXTS, self.made])


@dataclass(frozen=True)
class Training:
    """A training on the scenarios of the families.

    Attributes:
        name: on the board.
        learner: an agent of conf/.
        settings: what is not as usual. A learner stops after a whole generation or round, which its track must allow.
    """

    name: str
    learner: str
    settings: Sequence[str]

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        return _hash(self.made)

    @property
    def made(self) -> str:
        """The command that trains."""
        learner = [f"agent={self.learner}", f"name={self.name}"]
        return shlex.join(["bbrgym", "train", *learner, "scenario=families", "seed=1", *self.settings])

    def candidate(self) -> Candidate:
        """Return the best policy of the training, which is run if it was not before."""
        folder = RUNS / self.code / self.name
        if not (folder / "run.json").is_file():
            command = [PROGRAM, *shlex.split(self.made)[1:], "tracking=none", f"hydra.run.dir={folder}"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return Candidate.of(str(folder))


TRAININGS: Final = (
    Training("cma-1e6", "cma", ("agent.scenarios=4", "train.total_steps=950000")),
    Training("distil-1e6", "distil", ("agent.scenarios=400", "train.total_steps=950000")),
    Training("ppo-1e6", "ppo", ("train.total_steps=999000",)),
    Training("sac-1e6", "sac", ("train.total_steps=1000000",)),
    Training("cma-1e8", "cma", ("train.total_steps=100000000",)),
)


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps([board_code(), *parts]).encode()).hexdigest()[:16]


def jobs() -> list[House | Training]:
    """Return what is here: the algorithms, the policies, the C files, and the trainings."""
    algorithms = [
        House(one.name, one.algorithm, f"docs/algorithms/{one.name}.md")
        for one in find_competitors(["published"], describe_engine("native"))
    ]
    policies = [
        House("reference", "agents/reference", "docs/results/learned.md"),
        House("linear", "agents/linear", "docs/playground.md"),
    ]
    files = [House(path.name, f"examples/{path.name}", BY_HAND) for path in sorted((ROOT / "examples").glob("*.c"))]
    searched = House("five.c-searched", "examples/five.c", "python examples/search.py 60", SEARCHED)
    return [*algorithms, *policies, *files, searched, *TRAININGS]


def work(job: House | Training) -> Rows:
    """Score an entry, and return its text."""
    candidate = job.candidate()
    entry = submission(candidate, author=AUTHOR, licence=LICENCE, command=job.made)
    with Sandbox() as sandbox:
        score = score_candidate(candidate, entry.seed, has_rfc9743=False, sandbox=sandbox)
    return [{"entry": with_scores(entry, score).to_json()}]


@dataclass(frozen=True)
class Listed:
    """An entry as the page lists it."""

    name: str
    entry: Entry
    is_here: bool

    def estimate(self, *path: str) -> Estimate:
        """Return an estimate among its scores, which were JSON: null is NaN."""
        found: Any = self.entry.scores
        for name in path:
            found = found[name]
        return Estimate(**{name: math.nan if value is None else value for name, value in found.items()})


def listed(results: Mapping[str, Rows], folder: Path = HANDED_IN) -> list[Listed]:
    """Return all entries of one release and code, the best score first.

    The code is that of the entries that are here; files of other code wait until their authors score them again.
    """
    here = [Listed(name, parse_entry(rows[0]["entry"].encode()), is_here=True) for name, rows in results.items()]
    codes = [each.entry.code for each in here]
    code = board_code() if board_code() in codes or not codes else max(codes, key=codes.count)
    others = [Listed(path.stem, read_entry(path), is_here=False) for path in sorted(folder.glob("*.json"))]
    found = [each for each in [*here, *others] if each.entry.code == code]
    return sorted(found, key=lambda each: -each.estimate("score").value)


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the tables and the picture of the page."""
    entries = listed(results)
    names = {each.name for each in entries if each.is_here}
    return {
        "release": entries[0].entry.release,
        "code": entries[0].entry.code,
        "seed": entries[0].entry.seed,
        "scenarios": int(entries[0].estimate("score").n),
        "yardsticks": len(yardsticks()),
        "tracks": tracks(entries),
        "commands": [job.command for job in jobs() if isinstance(job, House) and job.name != job.what],
        "entries": standings(entries),
        "curves": figure("decisions", lambda: picture(entries)),
        "waiting": [f"`{job.made}`" for job in jobs() if job.name not in names and isinstance(job, Training)],
    }


def tracks(entries: Sequence[Listed]) -> str:
    """Return a table of the tracks: the rule of each, and its best entry."""
    rows = []
    for name, track in TRACKS.items():
        best = next((each for each in entries if each.entry.track == name), None)
        number = "" if best is None else best.estimate("score").text(".3f")
        rows.append([name, track.rule, "none yet" if best is None else page.cell(best.name), number])
    return page.table(["track", "what it takes", "the best", "score"], rows, [3])


def standings(entries: Sequence[Listed]) -> str:
    """Return a row per entry."""
    rows = [
        [
            page.cell(each.name) if each.is_here else f"[{page.cell(each.name)}](board/entries/{each.name}.json)",
            each.estimate("score").text(".3f"),
            playground(each),
            each.entry.track,
            "" if each.entry.decisions is None else f"{each.entry.decisions:,}",
            *(f"{each.estimate('harm', victim).value:.2f}" for victim in VICTIMS),
            *(f"{each.estimate('means', column).value:.3f}" for column in ("fair_power", "jain", "utilisation")),
            f"{each.estimate('means', 'delay').value:.2f}",
            made(each),
            page.cell(each.entry.made.author),
        ]
        for each in entries
    ]
    headings = ["entry", "score", "playground", "track", "decisions", *(f"harm to {victim}" for victim in VICTIMS)]
    headings += ["fair power", "Jain", "link used", "delay", "made", "by"]
    return page.table(headings, rows, [1, *range(4, 11)])


def made(each: Listed) -> str:
    """Return how an entry was made; a page of the documentation is a link, if the entry is one of ours."""
    text = each.entry.made.command
    if each.is_here and text.startswith("docs/"):
        return f"[{Path(text).stem}]({os.path.relpath(text, 'docs/results')})"
    return page.cell(text)


def playground(each: Listed) -> str:
    """Return a link that opens an entry in the playground beside the shipped policy, if the page can run it."""
    algorithm = each.entry.content.get("algorithm") or {"reference": "policy", "linear": "linear"}.get(each.name)
    if algorithm is None or not each.is_here:
        return "-"
    versus = "bbr" if algorithm == "policy" else "policy"
    flows = [{"algorithm": algorithm, "versus": versus, "rtt_ms": rtt_ms} for rtt_ms in (10, 50)]
    settings = json.dumps({"flows": flows, "preset": "short-rtt"}, separators=(",", ":"))
    return f"[open](../playground.md#{quote(settings, safe='')})"


@styled
def picture(entries: Sequence[Listed]) -> Figure:
    """Draw the score of policies against the decisions that they have learned from, beside the best of other tracks."""
    figure = empty_figure(3.2)
    axes = figure.subplots()
    policies = [each for each in entries if each.entry.decisions]
    points, marks = {}, {}
    for place, each in enumerate(policies):
        score, decisions = each.estimate("score"), float(each.entry.decisions or 0)
        colour = COLOURS[place % len(COLOURS)]
        axes.plot([decisions, decisions], [score.low, score.high], color=colour, linewidth=1.0)
        axes.plot([decisions], [score.value], "o", color=colour)
        points[each.name], marks[each.name] = [decisions, score.value], Mark(colour, "o")
    reached = sorted((float(each.entry.decisions or 0), each.estimate("score").value) for each in policies)
    best, steps = 0.0, []
    for decisions, value in reached:
        best = max(best, value)
        steps.append((decisions, best))
    if steps:
        axes.step(*zip(*[*steps, (1e9, best)], strict=True), where="post", color="#999999", linewidth=0.9, zorder=0)
    for track, style in zip(list(TRACKS)[3:], ("--", ":"), strict=True):
        if top := next((each for each in entries if each.entry.track == track), None):
            value = top.estimate("score").value
            axes.axhline(value, color="#666666", linestyle=style, linewidth=0.9, label=track)
            axes.annotate(top.name, (1.1e5, value), fontsize=9, va="bottom", color="#444444")
    lowest = min((each.estimate("score").low for each in policies), default=1.0)
    axes.set(
        xscale="log",
        xlim=(1e5, 1e9),
        ylim=(min(lowest - 0.05, 0.4), 1.0),
        xlabel="decisions, in millions",
        ylabel="score",
    )
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g}")
    name_points(axes, points, marks)
    axes.legend(loc="lower right", title="the best of the track", fontsize=9, title_fontsize=9)
    return figure

"""The scoreboard: what is handed in to it, by which rules, and whether its scores are true (docs/results/board.md).

A score on the board is that of `bbrgym score`, in scenarios whose seed follows from the release's name and from the
hash of its code. So it is the same for everybody, and nobody can have tuned to that of a later release.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import bbrgym
from bbrgym.baselines.policy_file import REFERENCE, read_policy
from bbrgym.benchmark import families, score_measures, statistics
from bbrgym.benchmark.board_entry import (
    MOST_BYTES,
    MOST_COLUMNS,
    MOST_LINES,
    Entry,
    Kind,
    Made,
    canonical,
    check_entry_name,
    check_text,
    content_of_policy,
    hash_of,
    one_line,
    read_entry,
)
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.code import code_hash, made_with
from bbrgym.benchmark.plan import find_competitors
from bbrgym.benchmark.sandbox import Sandbox
from bbrgym.benchmark.score import Score, score_candidate, yardsticks
from bbrgym.benchmark.score_measures import SHARING
from bbrgym.benchmark.statistics import estimate
from bbrgym.envs import sharing, sharing_meter
from bbrgym.envs.engine import EngineError, describe_engine, identity_of
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.files import DAMAGES, check_file, damage, write_text


@dataclass(frozen=True)
class Track:
    """A track.

    Attributes:
        rule: what it takes, in words.
        admits: whether it takes an entry.
    """

    rule: str
    admits: Callable[[Entry], bool]


@cache
def _published() -> frozenset[str]:
    return frozenset(one.algorithm for one in find_competitors(["published"], describe_engine("native")))


def _learned_from(most: float) -> Callable[[Entry], bool]:
    return lambda entry: entry.decisions is not None and entry.decisions <= most


TRACKS: Final[dict[str, Track]] = {
    "policy, 1e6 decisions": Track(
        "a policy of `bbrgym train` whose file records at most 1,000,000 decisions", _learned_from(1e6)
    ),
    "policy, 1e8 decisions": Track("the same, with at most 100,000,000", _learned_from(1e8)),
    "policy, any": Track(
        "any policy: also one of more decisions, imported, or begun from one of unknown decisions",
        lambda e: e.kind == "policy",
    ),
    f"C file of at most {MOST_LINES} lines": Track(
        f"a controller in one C file of at most {MOST_LINES} lines of {MOST_COLUMNS} letters, with any parameters",
        lambda entry: entry.kind == "C file",
    ),
    "published algorithm": Track(
        "an algorithm of bbrgym that a paper or a standard describes, with the parameters that it has there",
        lambda entry: entry.kind == "algorithm" and entry.content["algorithm"] in _published() and not entry.parameters,
    ),
}
"""The tracks; an entry is on the first one that takes it."""


def track_of(entry: Entry) -> str:
    """Return the track of an entry.

    Raises:
        ValueError: no track takes it.
    """
    for name, track in TRACKS.items():
        if track.admits(entry):
            return name
    given = f" with {', '.join(entry.parameters)}" if entry.parameters else ""
    raise ValueError(
        f"no track takes the algorithm {entry.content['algorithm']!r}{given}: algorithms must be published ones, with "
        "their own parameters"
    )


@cache
def board_code() -> str:
    """Return the hash of the code and of the yardsticks that decide scores; the same with every version of Python."""
    modules = (families, score_measures, sharing, sharing_meter, statistics)
    sources = [inspect.getsource(module) for module in modules]
    alone = Scenario(flows=(Flow("agent"),))
    beside = [identity_of(one.takes(alone, roles=None)) for one in yardsticks()]
    return code_hash("native", also=json.dumps([sources, beside], sort_keys=True))


def board_seed() -> int:
    """Return the seed of the scenarios of this release."""
    name = f"bbrgym {bbrgym.__version__} {board_code()}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % 2**31


@dataclass(frozen=True)
class Submission:
    """What `bbrgym score --submit` is told.

    Attributes:
        path: where the entry is written; its stem is the entry's name on the board.
        author: who hands it in; plain text, as are the next two.
        licence: of the content, as an SPDX identifier.
        made: the command that made the content, or how else it was made.

    Raises:
        ValueError: a text is missing or not valid, or the file cannot be written.
    """

    path: Path
    author: str | None
    licence: str | None
    made: str | None

    def __post_init__(self) -> None:
        check_entry_name(self.path)
        check_file("--submit", self.path)
        for name in ("author", "licence", "made"):
            if getattr(self, name) is None:
                raise ValueError(f"--submit needs --{name}")
            check_text(f"--{name}", getattr(self, name))

    @property
    def seed(self) -> int:
        """The seed of the scenarios."""
        return board_seed()

    def entry_of(self, candidate: Candidate) -> Entry:
        """Return the entry of a candidate, without scores.

        Raises:
            ValueError: no track takes the candidate, or it is larger than an entry may be.
        """
        return submission(candidate, author=str(self.author), licence=str(self.licence), command=str(self.made))

    def write(self, score: Score) -> None:
        """Write the entry of a score.

        Raises:
            ValueError: see `with_scores`.
        """
        write_text(self.path, with_scores(self.entry_of(score.candidate), score).to_json())


def submission(candidate: Candidate, *, author: str, licence: str, command: str) -> Entry:
    """Return the entry of a candidate that is not scored yet.

    Args:
        candidate: a policy, a C file or a published algorithm.
        author: who hands it in; plain text, as are the next two.
        licence: of the content, as an SPDX identifier.
        command: what made the content.

    Raises:
        ValueError: no track takes the candidate, it is larger than an entry may be, or a text is not valid.
    """
    competitor = candidate.competitor
    kind: Kind = "algorithm"
    content: Mapping[str, Any] = {"algorithm": competitor.algorithm}
    if candidate.confinement == "python":
        raise ValueError("a Python callable cannot be handed in: the board takes policies, C files and algorithms")
    if candidate.confinement == "c":
        kind, content = "C file", {"text": Path(candidate.what).expanduser().read_text(encoding="utf-8")}
    elif competitor.algorithm == "policy" and not competitor.parameters:
        kind, content = "policy", content_of_policy(read_policy(competitor.policy or REFERENCE))
    parameters = dict(competitor.parameters)
    entry = Entry(
        release=bbrgym.__version__,
        code=board_code(),
        seed=board_seed(),
        track=next(iter(TRACKS)),
        kind=kind,
        content=content,
        parameters=parameters,
        content_hash=hash_of(kind, content, parameters),
        made=Made(author=author, licence=licence, command=command, versions=made_with()),
        scores={},
    )
    return dataclasses.replace(entry, track=track_of(entry))


def with_scores(entry: Entry, score: Score) -> Entry:
    """Return an entry with its scores.

    Raises:
        ValueError: the score is of other scenarios, the candidate failed in all of them or is not repeatable, or the
            entry is larger than one may be.
    """
    if score.seed != entry.seed or len(score.draws) != len(families.draw_scenarios(entry.seed)):
        raise ValueError(f"an entry has all scenarios of seed {entry.seed}, which is that of this release")
    if score.has_failed:
        raise ValueError(f"it failed in every scenario: {next(iter(score.failures.values()))}")
    if not score.is_repeatable:
        raise ValueError("two of its runs of one scenario with one seed differ, so that nobody can check its score")
    scored = dataclasses.replace(entry, scores=scores_of(score))
    if (size := len(scored.to_json().encode())) > MOST_BYTES:
        raise ValueError(f"an entry must have at most {MOST_BYTES:,} bytes, and this one has {size:,}")
    return scored


def scores_of(score: Score) -> dict[str, Any]:
    """Return all scores of a candidate as plain types: what an entry says, and what a replay must give."""
    columns = score.table.xs(score.name, level="competitor")
    return {
        "score": score.value._asdict(),
        "means": {column: estimate(columns[column])._asdict() for column in SHARING},
        "harm": {victim: estimate(of_victim[score.name])._asdict() for victim, of_victim in score.harms.items()},
        "runs": {
            draw.name: {"error": run["error"]} if "error" in run else {name: run[name] for name in SHARING}
            for draw, run in zip(score.draws, score.runs[score.name], strict=True)
        },
    }


@dataclass(frozen=True)
class Check:
    """What came of checking an entry.

    Attributes:
        path: of the entry.
        is_equal: whether the replay gave the same scores to the last bit.
        text: one sentence that says so, or why the entry is refused.
        track: of the entry; None if it is refused.
        score: of the replay; None if there was none.
    """

    path: Path
    is_equal: bool
    text: str
    track: str | None = None
    score: float | None = None

    @property
    def line(self) -> str:
        """The sentence after the path, which anybody can have chosen, as one line."""
        return f"{one_line(str(self.path))}: {self.text}"


def check_entries(paths: Iterable[Path], sandbox: Sandbox | None = None) -> Iterator[Check]:
    """Yield what comes of checking each of some entries.

    Raises:
        EngineError: a process of the sandbox has died.
    """
    with nullcontext(sandbox) if sandbox is not None else Sandbox() as running:
        for path in paths:
            try:
                yield check_entry(path, running)
            except OSError as error:
                yield Check(path, is_equal=False, text=f"refused: {one_line(error.strerror or str(error))}")
            except ValueError as error:
                yield Check(path, is_equal=False, text=f"refused: {one_line(str(error))}")


def check_entry(path: Path, sandbox: Sandbox) -> Check:
    """Replay an entry in the sandbox, and compare its scores to the last bit.

    Other entries in its folder are those that it must differ from.

    Raises:
        ValueError: it is refused; one sentence says why.
        EngineError: a process of the sandbox has died.
        OSError: the file cannot be read.
    """
    entry = read_entry(path)
    if (entry.release, entry.code, entry.seed) != (bbrgym.__version__, board_code(), board_seed()):
        raise ValueError(
            f"it is of release {entry.release}, code {entry.code} and seed {entry.seed}, and this is release "
            f"{bbrgym.__version__}, code {board_code()} and seed {board_seed()}: score it again with this one"
        )
    if entry.track != (track := track_of(entry)):
        raise ValueError(f"its track is {track!r}, got {one_line(entry.track)!r}")
    _check_others(path, entry)
    with _candidate(path.stem, entry) as candidate:
        score = score_candidate(candidate, entry.seed, has_rfc9743=False, sandbox=sandbox)
    found = scores_of(score)
    if canonical(found) != canonical(entry.scores):
        where, given, measured = difference(entry.scores, found)
        text = f"not equal: {where} is {given} in the entry and {measured} in the replay"
        return Check(path, is_equal=False, text=text, track=track, score=score.value.value)
    if entry.kind != "algorithm":
        _check_yardsticks(score)
    text = f"equal: {score.value.text('.3f')} in {len(score.ratios)} scenarios of seed {entry.seed}, track {track!r}"
    return Check(path, is_equal=True, text=text, track=track, score=score.value.value)


def difference(given: Any, found: Any, where: str = "") -> tuple[str, str, str]:
    """Return where plain types differ first, and what is there in each, as short texts."""
    if isinstance(given, Mapping) and isinstance(found, Mapping):
        for name in dict.fromkeys([*found, *given]):
            inner = f"{where}.{name}" if where else str(name)
            if name not in given or name not in found:
                sides = [canonical(side[name]) if name in side else "missing" for side in (given, found)]
                return one_line(inner), one_line(sides[0])[:60], one_line(sides[1])[:60]
            if canonical(given[name]) != canonical(found[name]):
                return difference(given[name], found[name], inner)
    return one_line(where), one_line(canonical(given))[:60], one_line(canonical(found))[:60]


def _check_others(path: Path, entry: Entry) -> None:
    """Refuse what another entry of the folder has handed in already, as it is or in another form."""
    for other in sorted(path.parent.glob("*.json")):
        if other.name == path.name:
            continue
        try:
            theirs = read_entry(other)
        except (ValueError, OSError):
            continue  # it is refused itself
        if theirs.content_hash == entry.content_hash:
            raise ValueError(f"its content is that of the entry {other.stem} by {theirs.made.author}")
        if entry.scores and canonical(theirs.scores.get("runs")) == canonical(entry.scores.get("runs")):
            raise ValueError(f"its runs are those of the entry {other.stem} by {theirs.made.author}")


def _check_yardsticks(score: Score) -> None:
    """Refuse the controller of somebody else in another form: the same decisions give the same runs."""

    def plain(name: str) -> str:
        return canonical([{column: run.get(column) for column in SHARING} for run in score.runs[name]])

    own = plain(score.name)
    for name in score.runs:
        if name != score.name and plain(name) == own:
            raise ValueError(f"its runs are those of {name}, which the board has already")


@contextmanager
def _candidate(name: str, entry: Entry) -> Iterator[Candidate]:
    """Yield what an entry hands in, from files of its own.

    Raises:
        ValueError: it cannot be compiled or read; one sentence says why.
    """
    with tempfile.TemporaryDirectory(prefix="bbrgym-") as folder:
        place = Path(folder) / (f"{name}.c" if entry.kind == "C file" else name)
        try:
            if entry.kind == "C file":
                place.write_text(entry.content["text"], encoding="utf-8")
            elif entry.kind == "policy":
                entry.policy().save(place)
            what = entry.content["algorithm"] if entry.kind == "algorithm" else str(place)
            candidate = Candidate.of(what, entry.parameters)
        except EngineError:
            raise
        except DAMAGES as error:
            lines = str(error).splitlines()
            raise ValueError(one_line(": ".join([damage(error).rstrip(":"), *_compiler_error(lines)]))) from None
        yield candidate


def _compiler_error(lines: list[str]) -> list[str]:
    """Return the first error in what a compiler printed."""
    return [line.partition("error: ")[2] for line in lines if "error: " in line][:1]

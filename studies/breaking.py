"""What `bbrgym break` finds: twenty planted defects, failures that the literature knows, and those of six controllers.

A planted defect counts as found if the search has a failure of it, with three seeds of five, on a path where its
correct twin is not broken in the same way. Seconds are processor seconds of one core, of the search alone.
"""

from __future__ import annotations

import inspect
import json
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from bbrgym.baselines.registry import LINUX_PREFIX
from bbrgym.benchmark import run_facts, traces
from bbrgym.benchmark.breaking import failures, find, judging, properties, shrink, space, words
from bbrgym.benchmark.breaking.failures import look, replay
from bbrgym.benchmark.breaking.find import Found
from bbrgym.benchmark.breaking.judging import Judge, Trial
from bbrgym.benchmark.breaking.properties import PROPERTIES
from bbrgym.benchmark.breaking.shrink import size
from bbrgym.benchmark.breaking.space import Space
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.ledger import Rows
from bbrgym.envs.engine import describe_engine
from bbrgym.envs.scenario import Scenario
from studies import page
from studies.study import PROGRAM

ROOT: Final = Path(__file__).parents[1]

SOURCES: Final = ROOT / "tests" / "defects"
"""Two controllers in C, each right without a DEFECT_…"""

SECONDS: Final = 60.0
"""Processor seconds for each search."""

CONTROLLERS: Final = ("policy", "bbr3", "cubic", "examples/vegas.c", "examples/aimd.c", "examples/five.c")
"""What the command searches for any failure, with `CANDIDATES` paths."""
CANDIDATES: Final = 400
WORST: Final = 3
"""How many failures of each the page shows."""

LIMITS: Final = {name: one.limit for name, one in PROPERTIES.items()}


@dataclass(frozen=True)
class Defect:
    """A mistake that is planted in a correct controller.

    Attributes:
        source: the controller.
        text: what is wrong.
        kinds: a path that shows it has one of these; () for any path.
        properties: that it can break.
    """

    source: str
    text: str
    kinds: tuple[str, ...] = ()
    properties: tuple[str, ...] = ("regret", "starved", "stalled", "bloated")

    def is_shown_by(self, name: str, trial: Trial) -> bool:
        """Return whether a failure is of the kind that the defect makes."""
        return name in self.properties and _has_one_of(self.kinds, trial.scenario)


def _has_one_of(kinds: tuple[str, ...], scenario: Scenario) -> bool:
    """Return whether a path has one of these kinds; () for any path."""
    return not kinds or bool({*kinds} & {*words.kind_of(scenario).split(" + ")})


DEFECTS: Final = {
    "MIN_RTT_NEVER_EXPIRES": Defect("model", "the shortest RTT never expires", ("rtt",)),
    "MIN_RTT_OF_THE_QUEUE": Defect("model", "the shortest RTT expires while the queue stands"),
    "NO_PACING": Defect("model", "it does not pace"),
    "NEVER_ABOVE_THE_ESTIMATE": Defect("model", "pacing is never above the estimate", ("rate", "alike", "crowd")),
    "STARTUP_LASTS_WITH_LOSS": Defect(
        "model", "Startup does not end in rounds with a loss", ("loss", "bursts", "burst_packets")
    ),
    "RTT_IN_MILLISECONDS": Defect("model", "the RTT has whole milliseconds"),
    "BYTES_IN_32_BITS": Defect("model", "rate x RTT is computed in 32 bits"),
    "AGGREGATION_IS_BANDWIDTH": Defect(
        "model",
        "ACKs that come together are taken for bandwidth",
        ("aggregation", "jitter", "ack_loss", "reverse", "reordering"),
    ),
    "BANDWIDTH_NEVER_EXPIRES": Defect(
        "model", "the largest bandwidth never expires", ("rate", "crowd", "alike", "outage")
    ),
    "BELIEVES_THE_APPLICATION": Defect("model", "what the application limits is taken for bandwidth", ("application",)),
    "RATE_WITHOUT_RTT": Defect("model", "it divides by an RTT that an ACK may lack", properties=("crash",)),
    "SSTHRESH_NEVER_FALLS": Defect("loss", "ssthresh never falls"),
    "NO_UNDO": Defect("loss", "the window is not restored after a spurious loss", ("reordering", "rtt")),
    "BURST_COUNTED_BY_PACKETS": Defect("loss", "one burst of losses is counted once per packet"),
    "GROWS_WITHOUT_DATA": Defect("loss", "the window grows while the application limits", ("application",)),
    "ECN_ANSWERED_PER_ACK": Defect("loss", "ECN is answered at every ACK", ("ecn", "aqm")),
    "NO_FLOOR": Defect("loss", "the window has no floor"),
    "NO_SLOW_START_AFTER_A_TIMEOUT": Defect("loss", "no slow start after a timeout"),
    "IGNORES_LOSS": Defect("loss", "losses are ignored"),
    "WINDOW_IN_16_BITS": Defect("loss", "the window has 16 bits"),
}
"""The planted defects, by the macro that plants each."""


def candidate(source: str, defect: str | None, folder: Path) -> Candidate:
    """Return a controller with a defect; without one, its correct twin."""
    text = (SOURCES / f"{source}.c").read_text(encoding="utf-8")
    path = folder / f"{source}-{(defect or 'correct').lower().replace('_', '-')}.c"
    path.write_text(text if defect is None else f"#define DEFECT_{defect}\n{text}", encoding="utf-8")
    return Candidate.of(str(path))


def hunt(
    defect: str,
    *,
    evolves: bool = True,
    shrinks: bool = True,
    seed: int = 1,
    seconds: float = SECONDS,
    candidates: int | None = None,
) -> dict[str, Any]:
    """Search for a planted defect until it is found, or the processor time or the candidates are spent.

    Returns:
        `found`, `seconds`, `paths`; and of what was shrunk `property`, `path`, `outcome`, `value`, `twin` (its value
        of the property) and the sizes.
    """
    planted = DEFECTS[defect]
    with tempfile.TemporaryDirectory(prefix="bbrgym-") as folder:
        judge = Judge(candidate(planted.source, defect, Path(folder)), LIMITS)
        twin = Judge(candidate(planted.source, None, Path(folder)), LIMITS)
        clock = _Clock()
        told: set[tuple[str, Trial]] = set()
        guilty: list[tuple[str, Trial]] = []

        def tell(found: Found) -> None:
            with clock.paused():
                for name, entry in found.failures:
                    key = name, entry.trial
                    if guilty or key in told or not planted.is_shown_by(*key):
                        continue
                    if not _is_broken(twin, name, entry.trial):
                        guilty.append(key)
                    told.add(key)

        found = find.find(
            judge,
            Space.read(),
            seed,
            candidates=candidates,
            is_over=lambda: bool(guilty) or clock.seconds >= seconds,
            evolves=evolves,
            tell=tell,
        )
        row: dict[str, Any] = {"found": bool(guilty), "seconds": round(clock.seconds, 1), "paths": found.candidates}
        if guilty and shrinks:
            row |= _shrunk(judge, twin, *guilty[0])
    return row


def _is_broken(judge: Judge, name: str, trial: Trial) -> bool:
    (count,) = shrink.holds(judge.only(name), name, [trial.scenario], trial.seed)
    return count >= shrink.NEEDED


def _shrunk(judge: Judge, twin: Judge, name: str, trial: Trial) -> dict[str, Any]:
    """Return what is printed of a failure; it is not shrunk where its twin would then be broken, too."""
    scenario = failures.shrunk(judge, name, trial)
    if _is_broken(twin, name, Trial(scenario, trial.seed)):
        scenario = trial.scenario
    failure = look(judge, name, Trial(scenario, trial.seed), trial.scenario) or look(judge, name, trial)
    assert failure is not None
    of_twin = twin.only(name, limit=0.0).judge([failure.trial])[0][name]
    return {
        "property": name,
        "path": failure.path,
        "kind": failure.kind,
        "outcome": failure.outcome,
        "value": failure.verdict.value,
        "twin": of_twin.value,
        **_sizes(failure),
    }


def _sizes(failure: failures.Failure) -> dict[str, float]:
    before, after = size(failure.before), size(failure.trial.scenario)
    return {
        "flows_before": before[0],
        "fields_before": before[1],
        "flows_after": after[0],
        "fields_after": after[1],
    }


class _Clock:
    """Processor seconds of this process and its children, without those of pauses."""

    def __init__(self) -> None:
        self._began = self._now()
        self._away = 0.0

    @property
    def seconds(self) -> float:
        return self._now() - self._began - self._away

    @contextmanager
    def paused(self) -> Iterator[None]:
        began = self._now()
        try:
            yield
        finally:
            self._away += self._now() - began

    @staticmethod
    def _now() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime


@dataclass(frozen=True)
class Known:
    """A failure that the literature describes.

    Attributes:
        what: the algorithm.
        text: what fails, and where that is said.
        properties: that show it.
        kinds: a path that shows it has one of these; () for any path.
        cause: what a path with a regret must lack; None for any.
        needs: what else must hold of the path.
        kernel: the algorithm of the kernel's own TCP on which the path is replayed; None if it has none.
    """

    what: str
    text: str
    properties: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    cause: str | None = None
    needs: Callable[[Scenario], bool] = lambda scenario: True
    kernel: str | None = None

    def is_shown_by(self, failure: failures.Failure) -> bool:
        """Return whether a failure is this one."""
        own, best = failure.own, words.best_of(failure.verdict, failure.others)
        cause = None
        if failure.name == "regret" and best is not None:
            cause = words.regret_of(failure.verdict.best, own, best).cause
        return self.cause in (None, cause)

    def could_be(self, name: str, trial: Trial) -> bool:
        """Return whether a path and a property can show it."""
        return name in self.properties and _has_one_of(self.kinds, trial.scenario) and self.needs(trial.scenario)


KNOWN: Final = {
    "bbr stalls": Known(
        "bbr",
        "BBR stalls under bursts of loss (CC-Fuzz, HotNets 2022)",
        ("stalled",),
        ("bursts", "burst_packets"),
        needs=lambda scenario: all(flow.algorithm == space.OURS for flow in scenario.flows),
        kernel="linux-bbr",
    ),
    "bbr by RTT": Known(
        "bbr",
        "BBR is unfair to short RTTs (Hock et al., ICNP 2017)",
        ("regret", "starved"),
        ("crowd",),
        "fairness",
        needs=lambda scenario: not scenario.has_ecn,
        kernel="linux-bbr",
    ),
    "bbr3 after a fall": Known(
        "bbr3",
        "BBRv3 starves after its rate falls fortyfold (draft-ietf-ccwg-bbr)",
        ("starved", "stalled"),
        ("rate",),
        needs=lambda scenario: any(rate < scenario.rate_mbps / 10 for _, rate in scenario.rate_schedule),
    ),
    "cubic bloats": Known(
        "cubic",
        "CUBIC fills the buffer (Gettys and Nichols 2011)",
        ("regret",),
        cause="delay",
        kernel="linux-cubic",
    ),
    "vegas and who comes late": Known(
        "vegas",
        "Vegas: who comes late takes the queue for the path (Mo et al., INFOCOM 1999)",
        ("unfair", "regret", "starved"),
        ("alike",),
        "fairness",
        kernel="linux-vegas",
    ),
    "copa in a small buffer": Known(
        "copa",
        "Copa in a buffer of a few packets (Arun and Balakrishnan, NSDI 2018)",
        ("regret", "starved", "stalled"),
        cause="utilisation",
        needs=lambda scenario: scenario.queue_packets <= 8,
    ),
    "newreno at long RTTs": Known(
        "newreno",
        "Reno is slow where the window is large (RFC 3649)",
        ("regret", "starved"),
        cause="utilisation",
        needs=lambda scenario: max(flow.rtt_ms for flow in scenario.flows) >= 100 and not scenario.has_ecn,
        kernel="linux-reno",
    ),
}
"""What the literature knows. The search is not told."""


def recognise(name: str, *, seed: int = 1, seconds: float = SECONDS) -> dict[str, Any]:
    """Search an algorithm until a known failure is among what is found; confirm it in ns-3 and in the kernel."""
    known = KNOWN[name]
    chosen = Candidate.of(known.what)
    judge = Judge(chosen, LIMITS)
    clock = _Clock()
    told: set[tuple[str, Trial]] = set()
    shown: list[tuple[str, Trial]] = []

    def tell(found: Found) -> None:
        with clock.paused():
            for of, entry in found.failures:
                key = of, entry.trial
                if shown or key in told or not known.could_be(*key):
                    continue
                told.add(key)
                failure = look(judge, *key)
                if failure is not None and known.is_shown_by(failure):
                    shown.append(key)

    found = find.find(judge, Space.read(), seed, is_over=lambda: bool(shown) or clock.seconds >= seconds, tell=tell)
    row: dict[str, Any] = {"found": bool(shown), "seconds": round(clock.seconds, 1), "paths": found.candidates}
    if shown:
        of, trial = shown[0]
        smaller = Trial(failures.shrunk(judge, of, trial), trial.seed)
        failure = look(judge, of, smaller, trial.scenario)
        if failure is None or not (known.could_be(of, failure.trial) and known.is_shown_by(failure)):
            failure = look(judge, of, trial)  # what was shrunk fails for another reason
        assert failure is not None
        row |= {"property": of, "path": failure.path, "outcome": failure.outcome, **_sizes(failure)}
        row["ns3"] = replay(failure, chosen, judge, "ns3").elsewhere["ns3"].text
        if known.kernel is not None:
            row["linux"] = _in_the_kernel(known.kernel, failure, judge)
    return row


def _in_the_kernel(algorithm: str, failure: failures.Failure, judge: Judge) -> str:
    """Return what comes of a failure with the kernel's own TCP, in words."""
    if algorithm not in describe_engine("linux").comparators:
        return f"this kernel has no {algorithm.removeprefix(LINUX_PREFIX)}"
    return replay(failure, Candidate.of(algorithm, engine="linux"), judge, "linux").elsewhere["linux"].text


def command(what: str) -> list[str]:
    """Return the arguments of `bbrgym` that search a controller for any failure."""
    return ["break", what, "--candidates", str(CANDIDATES)]


def broken(what: str) -> dict[str, Any]:
    """Return what the command says of a controller, on one core."""
    arguments = [PROGRAM, *command(what), "executor.workers=1", "--json"]
    ended = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True)
    told = json.loads(ended.stdout)
    shown = ("property", "path", "outcome", "repeats")
    return {
        "seconds": told["seconds"],
        "first_s": told["first_failure_s"],
        "failures": json.dumps([{name: one[name] for name in shown} for one in told["failures"]]),
    }


Kind = Literal["search", "draws", "known", "any"]
"""A planted defect by search or by draws alone, a known failure, or any failure of a controller."""


@dataclass(frozen=True)
class Hunt:
    """A job."""

    kind: Kind
    what: str

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.kind} {self.what}"

    @property
    def code(self) -> str:
        """The hash of what decides the row, but for the seconds."""
        texts = search_sources()
        engines = ["native"]
        if self.kind == "known":
            engines.append("ns3")
            known = KNOWN[self.what]
            also = repr([self.what, known.what, known.properties, known.kinds, known.kernel])
        elif self.kind == "any":
            also = repr([self.kind, *command(self.what)])
            texts += [path.read_text(encoding="utf-8") for path in [ROOT / self.what] if path.is_file()]
        else:
            also = repr([self.kind, self.what, DEFECTS[self.what]])
            texts.append((SOURCES / f"{DEFECTS[self.what].source}.c").read_text(encoding="utf-8"))
        return code_hash(*engines, also=json.dumps([also, *texts]))


def search_sources() -> list[str]:
    """Return the code that decides what a search finds, and its box."""
    parts = (find, judging, run_facts, properties, shrink, space, failures, traces)
    return [*map(inspect.getsource, parts), space.DEFAULT.read_text(encoding="utf-8")]


def jobs() -> list[Hunt]:
    """Return all jobs."""
    known = [Hunt("known", name) for name in KNOWN]
    controllers = [Hunt("any", what) for what in CONTROLLERS]
    return [*(Hunt("search", one) for one in DEFECTS), *known, *controllers, *(Hunt("draws", one) for one in DEFECTS)]


def work(job: Hunt) -> Rows:
    """Measure a job."""
    if job.kind == "known":
        return [recognise(job.what)]
    if job.kind == "any":
        return [broken(job.what)]
    return [hunt(job.what, evolves=job.kind == "search", shrinks=job.kind == "search")]


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the names that the page uses."""
    rows = {job.name: results.get(job.name, [_MISSING])[0] for job in jobs() if job.kind != "any"}
    defects = [
        [
            one.text,
            _seconds(rows[f"search {name}"]),
            _seconds(rows[f"draws {name}"]),
            _text(rows[f"search {name}"], "property"),
            _line(rows[f"search {name}"]),
            _twin(rows[f"search {name}"]),
        ]
        for name, one in DEFECTS.items()
    ]
    known = [
        [
            one.text,
            _seconds(rows[f"known {name}"]),
            _text(rows[f"known {name}"], "property"),
            _line(rows[f"known {name}"]),
            _text(rows[f"known {name}"], "ns3"),
            _text(rows[f"known {name}"], "linux"),
        ]
        for name, one in KNOWN.items()
    ]
    shown = [row for name, row in rows.items() if row["found"] and not name.startswith("draws")]
    measured = {kind: sum(one.kind == kind and one.name in results for one in jobs()) for kind in get_args(Kind)}
    return {
        "measured": measured,
        "left": len(jobs()) - sum(measured.values()),
        "defects": page.table(("defect", "search, s", "draws, s", "property", "shrunk", "twin"), defects, (1, 2)),
        "known": page.table(("failure", "search, s", "property", "shrunk", "in ns-3", "in the kernel"), known, (1,)),
        "any": page.table(
            ("controller", "failures", "first, s", "property", "the worst"), _any_failures(results), (1, 2)
        ),
        "candidates": CANDIDATES,
        "worst": WORST,
        "searched": sum(_is_in_time(rows[f"search {name}"]) for name in DEFECTS),
        "drawn": sum(_is_in_time(rows[f"draws {name}"]) for name in DEFECTS),
        "recognised": sum(_is_in_time(rows[f"known {name}"]) for name in KNOWN),
        "seconds": f"{SECONDS:.0f}",
        "sizes": {
            name: f"{statistics.median(row[name] for row in shown):g}" if shown else "-"
            for name in ("flows_before", "fields_before", "flows_after", "fields_after")
        },
    }


def _any_failures(results: Mapping[str, Rows]) -> list[list[str]]:
    """Return the worst failures of each controller, a line each."""
    lines = []
    for what in CONTROLLERS:
        for row in results.get(Hunt("any", what).name, []):
            found = json.loads(str(row["failures"]))
            first = "-" if row["first_s"] is None else f"{row['first_s']:.1f}"
            facts = [what, str(len(found)), first]
            for failure in found[:WORST] or [{"property": "-", "path": "-", "outcome": "no failure"}]:
                lines.append([*facts, failure["property"], f"{failure['path']}: {failure['outcome']}"])
                facts = [""] * len(facts)
    return lines


_MISSING: Final[dict[str, Any]] = {"found": False, "seconds": None}


def _seconds(row: Mapping[str, Any]) -> str:
    if row["seconds"] is None:
        return "not measured"
    return f"{row['seconds']:.1f}" if _is_in_time(row) else "not found"


def _is_in_time(row: Mapping[str, Any]) -> bool:
    """Return whether a defect is found in time: a search ends after the generation in which its time is over."""
    return bool(row["found"]) and row["seconds"] <= SECONDS


def _text(row: Mapping[str, Any], name: str) -> str:
    text = row.get(name)  # NaN if other rows alone have one
    return text if row["found"] and isinstance(text, str) else "-"


def _line(row: Mapping[str, Any]) -> str:
    return f"{row['path']}: {row['outcome']}" if row["found"] else "-"


def _twin(row: Mapping[str, Any]) -> str:
    return f"{row['value']:.3g}, twin {max(row['twin'], 0):.2g}" if row["found"] else "-"

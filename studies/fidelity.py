"""Compare `bbr` in ns-3 and in native with Linux: `python -m studies.fidelity [--write docs/results/fidelity.md]`.

The situations are those of docs/results/linux.md with two flows of the kernel's own TCP, whose runs are kept in
studies/linux. A second table compares variants of `bbr` in native with Linux, to find the cause of a difference.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pandas as pd
from rich.console import Console

from bbrgym.benchmark.tables import run_table
from bbrgym.interruption import run_interruptible
from studies import page
from studies.linux.cases import BURSTS, FIDELITY, PAUSES, Case
from studies.linux.comparison import HEADINGS, LINUX, Variant, mean
from studies.linux.runs import Labelled, load_runs, measured, simulated

MARK = "studies/fidelity.py"
SEEDS = (1, 2, 3, 4, 5)
ENGINES = {"ns3": "ns-3", "native": "native"}

PLAIN = Variant("`bbr`")
STOCK = Variant("`bbr-stock`", algorithms={"linux-bbr": "bbr-stock", "linux-cubic": "cubic-stock"})
VARIANTS = (
    Variant("`bbr`, bursts as with segmentation offload", {"linux-bbr": BURSTS}),
    Variant("`bbr`, such bursts, ACKs up to 0.3 ms late", {"linux-bbr": BURSTS}, jitter_ms=0.3),
    Variant("`bbr`, as in the papers' kernel", {"linux-bbr": {"pacing_margin": 0.0, "extra_acked_gain": 0.0}}),
    Variant("`bbr`, no pacing margin", {"linux-bbr": {"pacing_margin": 0.0}}),
    Variant("`bbr`, long-term sampling", {"linux-bbr": {"long_term_sampling": 1.0}}),
    Variant("`bbr` against CUBIC that is paced", {"linux-cubic": {"is_paced": 1.0}}),
    Variant("`bbr` against CUBIC without HyStart++", {"linux-cubic": {"has_hystart": 0.0}}),
)
"""In native only."""

COLUMNS = {
    "throughput_mbps[0]": ".1f",
    "throughput_mbps[1]": ".1f",
    "share[0]": ".1%",
    "link_queue_mean_ms": ".0f",
    "retransmission_rate": ".2%",
    "link_utilisation": ".1%",
}
"""{column of `run_table`: number format}"""


def tables(runs: pd.DataFrame, console: Console) -> str:
    """Return a table of `bbr` in both engines beside Linux, and one of its variants in native over Linux.

    Raises:
        ValueError: Linux has not run a situation.
    """
    cases = [*FIDELITY, *PAUSES]
    if absent := [case.name for case in cases if not (runs["key"] == case.key).any()]:
        raise ValueError(f"no runs of Linux of {absent[0]}: `make linux ARGS=--measure` measures them")
    of_engines: dict[str, dict[tuple[str, str], Case]] = {engine: {} for engine in ENGINES}
    for case in cases:
        for engine, variant in _simulations(case):
            of_engines[engine][case.name, _name(engine, variant)] = variant.of(case)
    linux: Labelled = {(case.name, LINUX): case for case in cases}
    frames = [measured(linux, runs), *(simulated(of, name, SEEDS, console) for name, of in of_engines.items())]
    table = run_table(pd.concat(frames, ignore_index=True))
    return "\n\n".join([_beside(cases, table), "### Variants in native, less Linux", _over_linux(cases, table)])


def _simulations(case: Case) -> Iterator[tuple[str, Variant]]:
    """Yield the engines and variants in which a case is simulated."""
    yield from ((engine, PLAIN) for engine in ENGINES)
    yield "ns3", STOCK
    yield from (("native", variant) for variant in VARIANTS if variant.changes(case))


def _name(engine: str, variant: Variant) -> str:
    return f"{variant.name}, {ENGINES[engine]}"


def _beside(cases: list[Case], table: pd.DataFrame) -> str:
    rows = []
    shown = [LINUX, _name("ns3", PLAIN), _name("native", PLAIN), _name("native", VARIANTS[0]), _name("ns3", STOCK)]
    for case in cases:
        for who in shown:
            frame = table.xs((case.name, who), level=("scenario", "competitor"))
            cells = (mean(frame[column], form) for column, form in COLUMNS.items())
            rows.append([case.name if who == LINUX else "", who, str(len(frame)), *cells])
    return page.table(["situation", "", "runs", *(HEADINGS[column] for column in COLUMNS)], rows, range(2, 9))


def _over_linux(cases: list[Case], table: pd.DataFrame) -> str:
    columns = [column for column in COLUMNS if column not in ("share[0]", "link_utilisation")]
    means = {label: frame[columns].mean() for label, frame in table.groupby(level=["scenario", "competitor"])}
    rows = [
        [
            case.name,
            variant.name,
            *(_difference(column, means[case.name, who], means[case.name, LINUX]) for column in columns),
        ]
        for case in cases
        for variant in (PLAIN, *VARIANTS)
        if (case.name, who := _name("native", variant)) in means
    ]
    return page.table(["situation", "", *(HEADINGS[column].partition(",")[0] for column in columns)], rows, range(2, 6))


def _difference(column: str, ours: pd.Series, theirs: pd.Series) -> str:
    """Return how much ours differs from theirs: in per cent of theirs, or in points where that is a percentage."""
    if COLUMNS[column].endswith("%"):
        return f"{100 * (ours[column] - theirs[column]):+.2f} points"
    return f"{100 * (ours[column] / theirs[column] - 1):+.0f} %"


def main() -> int:
    """Run everything and print the tables; with --write, write them into the page."""
    options = page.parser(__doc__, MARK).parse_args()
    try:
        text = tables(load_runs(), Console(stderr=True))
    except ValueError as error:
        print(f"fidelity: {error}", file=sys.stderr)
        return 1
    page.publish(text, MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("fidelity", main))

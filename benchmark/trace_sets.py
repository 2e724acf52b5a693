"""`bbrgym traces`: what public sets of traces there are, what a folder of traces has, and a synthetic set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

import numpy as np

from bbrgym.benchmark.tables import print_table
from bbrgym.benchmark.traces import Array, TraceFile, mean_of, rates_of, read_folder
from bbrgym.checks import integer
from bbrgym.envs.rtt_trace import leo_trace
from bbrgym.files import write_text
from bbrgym.options import OptionParser
from bbrgym.terminal import make_console

STEP_S: Final = 0.1
"""Between values of a synthetic trace, and of statistics."""

SECONDS: Final = 300
"""How long a synthetic trace is."""


@dataclass(frozen=True)
class Statistics:
    """How rates vary.

    Attributes:
        mean_mbps: their mean.
        variation: their standard deviation over the mean, in steps of 100 ms.
        outage: the share of the steps with less than a tenth of the mean.
        memory: the correlation of means over 1 s, each with the next one; NaN where they do not vary.
    """

    mean_mbps: float
    variation: float
    outage: float
    memory: float


SYNTHETIC: Final[dict[str, tuple[Statistics, str]]] = {
    "lte.mahimahi": (Statistics(6.5, 0.53, 0.07, 0.93), "Mahimahi, ATT-LTE-driving.down"),
    "lte-fading.mahimahi": (Statistics(10.9, 0.99, 0.15, 0.87), "Mahimahi, TMobile-LTE-driving.down"),
    "umts.mahimahi": (Statistics(1.4, 1.04, 0.30, 0.89), "Mahimahi, TMobile-UMTS-driving.down"),
    "subway.csv": (Statistics(9.8, 0.64, 0.08, 0.92), "NYU-METS, 7Train1"),
}
"""The synthetic traces of rates by their files, and whose statistics they have, as `bbrgym traces` prints them."""

_LEO: Final = "leo.csv"


def traces_parser() -> OptionParser:
    """Return the parser of `bbrgym traces`."""
    parser = OptionParser("traces")
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="of traces; without it, public sets")
    parser.add_argument("--synthetic", action="store_true", help="write the synthetic set into the folder first")
    parser.add_argument("--seed", type=integer, default=1, metavar="N", help="of the synthetic set")
    return parser


def run_traces(arguments: list[str]) -> int:
    """List the public sets, or the files of a folder; or write the synthetic set into it."""
    options = traces_parser().parse_args(arguments)
    if options.folder is None:
        if options.synthetic:
            raise ValueError("--synthetic needs a folder to write into")
        print(resources.files("bbrgym.benchmark").joinpath("public_traces.txt").read_text(encoding="utf-8"), end="")
        return 0
    folder = options.folder.expanduser()
    if options.synthetic:
        write_synthetic(folder, options.seed)
    files = read_folder(folder, {"duration_s": SECONDS})
    headings = ("file", "trace of", "mean", "variation", "below a tenth", "correlation after 1 s")
    console = make_console()
    print_table(console, headings, [_row(file) for file in files])
    console.print(
        f"Of the first {SECONDS} s, in which a shorter file repeats, or its last value stays (docs/traces.md)."
    )
    return 0


def write_synthetic(folder: Path, seed: int) -> None:
    """Write synthetic traces with the statistics of `SYNTHETIC`, and one of RTTs as over satellites in low Earth orbit.

    Nothing in them is measured. The seed decides them.

    Raises:
        ValueError: the folder has one of the files already, so that none is written, or it cannot be written.
    """
    taken = [name for name in (*SYNTHETIC, _LEO) if (folder / name).exists()]
    if taken:
        raise ValueError(f"'{folder}' has {', '.join(taken)} already: give another folder, or remove them first")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_synthetic(folder, seed)
    except OSError as error:
        raise ValueError(f"'{folder}' cannot be written: {error.strerror or error}") from error


def _write_synthetic(folder: Path, seed: int) -> None:
    for place, (name, (wanted, _)) in enumerate(SYNTHETIC.items()):
        rates = synthetic_rates(wanted, seed + place)
        write = _mahimahi if name.endswith(".mahimahi") else _steps
        write_text(folder / name, "\n".join(write(rates)) + "\n")
    rtts = leo_trace(seed, SECONDS)
    write_text(folder / _LEO, "\n".join(["time_s,rtt_ms", *(f"{time:g},{rtt:g}" for time, rtt in rtts)]) + "\n")


def synthetic_rates(wanted: Statistics, seed: int) -> Array:
    """Return rates with given statistics, in Mbit/s, one per `STEP_S` of `SECONDS`.

    A level is an autoregressive process of the first order. Where it is lowest, the link is out; elsewhere it is the
    logarithm of the rate, up to a factor that gives the variation. All but the memory are exact.
    """
    generator = np.random.default_rng(seed)
    kept = wanted.memory**STEP_S
    levels = generator.normal(size=round(SECONDS / STEP_S))
    for place in range(1, len(levels)):
        levels[place] = kept * levels[place - 1] + math.sqrt(1 - kept**2) * levels[place]
    is_on = levels >= np.quantile(levels, wanted.outage)

    def rates_at(sigma: float) -> Array:
        rates: Array = np.where(is_on, np.exp(sigma * levels), 0.0)
        rates *= wanted.mean_mbps / rates.mean()
        return rates

    low, high = 0.0, 4.0
    for _ in range(30):
        sigma = (low + high) / 2
        is_less = rates_at(sigma).std() < wanted.variation * wanted.mean_mbps
        low, high = (sigma, high) if is_less else (low, sigma)
    return rates_at(low)


def statistics_of(file: TraceFile) -> Statistics:
    """Return the statistics of a trace that was read, of its first `SECONDS`; `mean_mbps` is ms for one of RTTs."""
    assert file.scenario is not None
    values = rates_of(file.scenario, file.kind, STEP_S)
    seconds = values[: len(values) // 10 * 10].reshape(-1, 10).mean(axis=1)
    mean = mean_of(file.scenario, file.kind)
    pairs = np.array([seconds[:-1], seconds[1:]])
    varies = pairs.size > 0 and bool((np.ptp(pairs, axis=1) > 1e-9 * mean).all())  # more than means are rounded
    memory = float(np.corrcoef(pairs)[0, 1]) if varies else math.nan
    return Statistics(mean, float(values.std()) / mean, float((values < 0.1 * mean).mean()), memory)


def _row(file: TraceFile) -> list[str]:
    if file.scenario is None:
        return [file.name, f"left out: {file.reason}", "", "", "", ""]
    found = statistics_of(file)
    is_rate = file.kind == "rate_trace"
    mean = f"{found.mean_mbps:.4g} {'Mbit/s' if is_rate else 'ms'}"
    memory = "-" if math.isnan(found.memory) else f"{found.memory:.2f}"
    outage = f"{found.outage:.0%}" if is_rate else ""
    return [file.name, "rates" if is_rate else "RTTs", mean, f"{found.variation:.2f}", outage, memory]


def _mahimahi(rates: Array) -> Iterator[str]:
    """Yield the opportunities of rates."""
    credit = 0.0
    for index, rate in enumerate(rates):
        credit += rate * 1e6 * STEP_S / 8 / 1500
        count = int(credit)
        credit -= count
        begin_ms = round(index * STEP_S * 1000)
        yield from (str(begin_ms + round(STEP_S * 1000) * (number + 1) // count) for number in range(count))
    yield str(round(len(rates) * STEP_S * 1000))  # where it repeats


def _steps(rates: Array) -> Iterator[str]:
    yield "throughput_mbps"
    yield from (f"{rate:.3f}" for rate in rates)

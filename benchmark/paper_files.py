"""The tables of a benchmark as CSV and LaTeX, and its plots as PDF: for a spreadsheet or a paper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pandas as pd

from bbrgym.benchmark import plots
from bbrgym.benchmark.report import marks_of_report
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.style import STYLE
from bbrgym.benchmark.tables import has_several_flows, short_note, summary_table, views
from bbrgym.extras import optional
from bbrgym.files import write_text

with optional("a plot"):
    from matplotlib import rc_context

PLOTS: Final = {"delay": plots.throughput_against_delay, "jain": plots.jain_intervals, "shares": plots.shares}
EMBEDDED: Final = {"pdf.fonttype": 42}
"""TrueType fonts, which publishers ask for, instead of matplotlib's Type 3."""


def write_paper_files(result: BenchmarkResult) -> Path:
    r"""Write the tables and plots of a benchmark into `paper` in its directory, and return this folder.

    `summary.csv` has every metric with mean, interval and number of runs, one row per scenario and competitor. Of each
    scenario there are the report's tables as LaTeX (`\usepackage{booktabs}`) and its plots as PDF.

    Raises:
        ValueError: no run is done.
    """
    if result.results.empty:
        raise ValueError(f"{result.directory} has no finished run: there is nothing to export")
    folder = result.directory / "paper"
    folder.mkdir(exist_ok=True)
    summary = summary_table(result.results)
    marks = marks_of_report(result.plan["config"])
    flat = summary.set_axis([" ".join(column) for column in summary.columns], axis=1)
    write_text(folder / "summary.csv", flat.to_csv())
    for place, (name, of_scenario) in enumerate(summary.groupby(level="scenario", sort=False), start=1):
        words = re.sub(r"[^\w-]+", "-", str(name)).strip("-")
        stem = f"{place:02}-{words}"
        for view in views(of_scenario.droplevel("scenario")):
            rows = [[competitor, *cells] for competitor, cells in view.rows]
            frame = pd.DataFrame(rows, columns=["competitor", *(heading.text for heading in view.headings)])
            text = frame.to_latex(index=False, escape=True, column_format="l" + "r" * len(view.headings))
            note = "".join(f"% {line}\n" for line in f"{name}. {short_note(of_scenario)}\n{view.note}".splitlines())
            write_text(folder / f"{stem}{'-' * bool(view.title)}{view.title.replace(' ', '-')}.tex", note + text)
        results = result.results[result.results["scenario"] == name]
        for what, draw in PLOTS.items():
            if what != "delay" and not has_several_flows(results):
                continue
            figure = draw(results, marks=marks)
            with rc_context(STYLE | EMBEDDED):
                figure.savefig(folder / f"{stem}-{what}.pdf", metadata={"CreationDate": None})
    return folder

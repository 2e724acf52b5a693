"""What all pages in HTML share: a look for light and dark, and tables that sort by a click, without other files."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --quiet: #595959; --line: #ddd; --head: #999;
        --hover: #f6f8fa; --bad: #a40000; --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #141414; --quiet: #a8a8a8; --line: #333; --head: #777; --hover: #20242a;
          --bad: #ff8a80; --link: #7ab7ff; }
  figure svg { filter: invert(.92) hue-rotate(180deg); }
}
body { margin: 0 auto; max-width: 64rem; padding: 1.5rem 1.2rem 4rem; color: var(--ink); background: var(--paper);
       font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .3rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
h3 { font-size: 1.02rem; margin: 1.8rem 0 .4rem; }
p { margin: .4rem 0; max-width: 52rem; }
ul { margin: .4rem 0; padding-left: 1.2rem; max-width: 52rem; font-size: .92rem; }
.headline { font-size: 1.08rem; margin: .8rem 0 1rem; }
.quiet { color: var(--quiet); }
.bad { color: var(--bad); }
.wide { overflow-x: auto; margin: .6rem 0 1rem;
        background: linear-gradient(to left, var(--paper) 40%, transparent) right / 2.5rem 100% no-repeat local,
                    linear-gradient(to left, var(--line), transparent) right / 1rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem; }
th, td { padding: .22rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line);
         vertical-align: top; }
th { font-weight: 600; border-bottom: 1px solid var(--head); white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: 0; position: sticky; left: 0;
                                 background: var(--paper); }
tr.own td { font-weight: 700; }
table.words :is(th, td) { position: static; }
table.words td { white-space: normal; text-align: left; overflow-wrap: anywhere; }
table.words th { text-align: left; }
tbody tr:hover, tbody tr:hover td { background: var(--hover); }
th[role=button] { cursor: pointer; }
th[aria-sort=ascending]::after { content: " \\2191"; }
th[aria-sort=descending]::after { content: " \\2193"; }
figure { margin: 1rem 0 1.4rem; overflow-x: auto; }
figcaption { color: var(--quiet); font-size: .86rem; margin-top: .2rem; max-width: 46rem; }
svg { display: block; height: auto; max-width: 100%; min-width: 22rem; }
pre { background: var(--hover); padding: .7rem .9rem; overflow-x: auto; font-size: .84rem; }
code { overflow-wrap: anywhere; }
summary { cursor: pointer; padding: .25rem 0; }
nav { display: flex; flex-wrap: wrap; column-gap: 1rem; }
a { color: var(--link); }
@media print { details { display: none; } }
"""
"""The style sheet.

A table that goes on at the right has a shadow there, until one scrolls to its end. Figures are drawn for white paper:
in the dark, their lightness is inverted and their hues stay.
"""

SCRIPT: Final = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = (row, column) => {
    const text = row.cells[column].textContent.trim(), number = parseFloat(text.replace("\\u2212", "-"));
    return Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    head.setAttribute("role", "button");
    head.onclick = () => {
      const isRising = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", isRising ? "ascending" : "descending");
      const rows = [...body.rows].sort((a, b) => (isRising ? 1 : -1) * compare(value(a, column), value(b, column)));
      body.append(...rows);
    };
    head.onkeydown = (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      head.onclick();
    };
  });
}
"""
"""Sorts the tables of the class `sortable` by the column whose head is clicked: numbers by value, before texts."""

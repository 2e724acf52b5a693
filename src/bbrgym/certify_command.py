"""`bbrgym certify`: prove or refute properties of a trained policy (docs/certificates.md)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from bbrgym.agents.certificates import (
    BOXES,
    PROVED,
    REFUTED,
    Certificate,
    NothingObservedError,
    certify,
    default_properties,
    observed_box,
)
from bbrgym.agents.properties import Property, read_conditions, read_property
from bbrgym.baselines import registry
from bbrgym.baselines.policy_file import read_policy
from bbrgym.benchmark.tables import Heading, print_table
from bbrgym.checks import check_integer, check_number
from bbrgym.envs.observation import PREFERENCE
from bbrgym.layout import wrap
from bbrgym.options import OptionParser
from bbrgym.output import tell
from bbrgym.terminal import make_console

_ANY: Final = "any"
"""In place of a preference."""


def certify_parser() -> OptionParser:
    """Return the parser of `bbrgym certify`."""
    parser = OptionParser("certify")
    parser.add_argument("agent", metavar="RUN", help="a training run, or an agent's folder; latest is the newest run")
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="TEXT",
        help="'CONDITION, CONDITION -> CLAIM', in place of the usual ones; exit with 1 if it is not proved",
    )
    parser.add_argument(
        "--where", action="append", default=[], metavar="CONDITIONS", help="of every property, as 'min_rtt >= 5'"
    )
    parser.add_argument(
        "--preference",
        default=f"{registry.defaults('policy')[PREFERENCE]:g}",
        metavar="P",
        help="of the flow, in [0, 1], or any",
    )
    parser.add_argument(
        "--episodes",
        type=int,
        metavar="N",
        help="instead of all that features can have, only what it observes in N episodes of its training",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="draws the episodes")
    parser.add_argument("--boxes", type=int, default=BOXES, metavar="N", help="budget for each number that is tried")
    return parser


def run_certify(arguments: list[str]) -> int:
    """Run the command.

    Returns:
        0; 1 if a property that was given is not proved.
    """
    options = certify_parser().parse_args(arguments)
    preference = _read_preference(options.preference)
    check_integer("--episodes", options.episodes, at_least=1, or_none=True)
    check_integer("--seed", options.seed, at_least=0, below=2**31)
    check_integer("--boxes", options.boxes, at_least=1)
    given = [read_property(text) for text in options.property]
    conditions = tuple(one for text in options.where for one in read_conditions(text))
    if sought := [condition for condition in conditions if condition.number is None]:
        raise ValueError(f"--where must have numbers, got '{sought[0]}'")
    policy = read_policy(options.agent)
    observed = None if options.episodes is None else observed_box(policy, options.episodes, options.seed)
    found: list[Certificate] = []
    for asked in given or default_properties(policy):
        under = Property((*asked.conditions, *conditions), asked.claim)
        try:
            found.append(certify(policy, under, preference=preference, observed=observed, boxes=options.boxes))
        except NothingObservedError:
            if given:
                raise
            print(f"Left out, as no observation fulfils its conditions: {asked}", file=sys.stderr)
    _print(found, len(conditions))
    counts = Counter(one.verdict for one in found)
    box = "all that its features can have"
    if options.episodes is not None:
        box = f"what it observed in {options.episodes} episodes of seed {options.seed}"
    if conditions:
        box += f" where {', '.join(map(str, conditions))}"
    results = ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "nothing to prove"
    headline = f"{results}, over {box}"
    is_enough = not given or counts[PROVED] == len(found)
    tell(
        "\n".join(wrap(f"{headline}, at {_preference_text(preference)}.")),
        {
            "agent": str(options.agent),
            "content_hash": policy.content_hash,
            "preference": preference,
            "episodes": options.episodes,
            "certificates": [one.to_dict() for one in found],
            "is_enough": is_enough,
        },
    )
    return 0 if is_enough else 1


def _read_preference(text: str) -> float | None:
    if text == _ANY:
        return None
    try:
        preference = float(text)
    except ValueError:
        raise ValueError(f"--preference must be in [0, 1], or {_ANY}, got {text!r}") from None
    check_number("--preference", preference, at_least=0, at_most=1)
    return preference


def _preference_text(preference: float | None) -> str:
    return "any preference" if preference is None else f"preference {preference:g}"


def _print(found: Sequence[Certificate], common: int) -> None:
    """Print what was found, without the last conditions of each property, which are common to all."""
    headings = (Heading("property", kind="words"), Heading("result", kind="words"), Heading("reached"))
    rows = []
    for one in found:
        verdict = f"{one.verdict}, as of any policy" if one.is_of_action else one.verdict
        rows.append((_own(one.stated, common), verdict, "" if one.reached is None else f"{one.reached:.4g}"))
    print_table(make_console(), headings, rows)
    for one in found:
        if one.verdict != REFUTED:
            continue
        lines = [*wrap(f"Refuted: {_own(one.stated, common)}")]
        if one.before:
            lines += wrap(f"after 30 steps of {_text(one.example_before)}", "  ", "  ")
        lines += wrap(f"on {_text(one.example)}", "  ", "  ")
        lines += wrap(f"it decides {_text(one.decision)}", "  ", "  ")
        print("\n".join(lines) + "\n")


def _own(stated: Property, common: int) -> str:
    return str(Property(stated.conditions[: len(stated.conditions) - common], stated.claim))


def _text(values: Mapping[str, float]) -> str:
    said = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
    return said or "nothing but neutral features"

"""What all figures share: marks that tell competitors apart."""

from bbrgym.baselines.registry import COMPARATORS, controllers
from bbrgym.benchmark import style

ALGORITHMS = [name for name in [*controllers(), *COMPARATORS] if name != "agent"]


def test_every_registered_algorithm_has_a_mark_of_its_own() -> None:
    marks = [style.mark_of(name) for name in ALGORITHMS]
    assert len(set(marks)) == len(marks)
    assert style.mark_of("my-agent") == style.UNREGISTERED


def test_competitors_of_a_figure_can_be_told_apart() -> None:
    marks = style.marks_of(["bbr", "without-alpha", "without-beta", "without-both"])
    assert len({mark.colour for mark in marks.values()}) == 4
    assert marks["bbr"] == style.mark_of("bbr")
    assert style.marks_of(["bbr", "my-agent"])["my-agent"] == style.UNREGISTERED
    # Two that have one colour in the registry.
    first, second = ALGORITHMS[0], ALGORITHMS[len(style.COLOURS)]
    marks = style.marks_of([second, first, ALGORITHMS[1]])
    assert len({mark.colour for mark in marks.values()}) == 3
    assert [marks[name] for name in (second, ALGORITHMS[1])] == [style.mark_of(second), style.mark_of(ALGORITHMS[1])]


def test_all_competitors_of_a_report_have_marks_of_their_own() -> None:
    names = [*ALGORITHMS, "bbr-stock", "cubic-stock", *(f"agent-{index}" for index in range(6))]
    marks = style.marks_of(names)
    assert len({(mark.colour, mark.marker) for mark in marks.values()}) == len(set(names))
    assert marks == style.marks_of(names)

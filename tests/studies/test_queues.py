"""The study that compares queues runs, and shows both engines side by side."""

import dataclasses
import io
from contextlib import closing

from rich.console import Console

from bbrgym import make_engine
from studies import queues


def test_the_table_has_a_line_for_every_run() -> None:
    situation = dataclasses.replace(queues.SITUATIONS["one CUBIC, ECN"], duration_s=12.0)
    with closing(make_engine("native")) as engine:
        text = queues.table({"short": situation}, {"native": engine}, (1,), Console(file=io.StringIO()))
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert lines[0] == list(queues.HEADINGS)
    assert [line[:3] for line in lines[2:]] == [["short", queue, "native"] for queue in queues.QUEUES]
    for _, _, _, share, utilisation, mean_ms, p95_ms, drops, marks in lines[2:]:
        assert share == "100.0%"
        assert float(utilisation[:-1]) > 50
        assert 0 < float(mean_ms) < float(p95_ms)
        assert float(drops) + float(marks) > 0

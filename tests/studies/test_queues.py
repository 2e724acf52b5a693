"""The study that compares queues measures every run, and shows both engines side by side."""

import dataclasses

import pytest

from studies import queues


def test_the_table_has_a_line_for_every_queue_and_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    situation = dataclasses.replace(queues.SITUATIONS["one CUBIC, ECN"], duration_s=12.0)
    monkeypatch.setattr(queues, "SITUATIONS", {"short": situation})
    monkeypatch.setattr(queues, "ENGINES", {"native": {"name": "native"}})
    monkeypatch.setattr(queues, "SEEDS", (1,))
    text = str(queues.view({job.name: queues.work(job) for job in queues.jobs()}, lambda name, draw: name)["runs"])
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert lines[0][3:] == [heading for heading, _ in queues.COLUMNS.values()]
    assert [line[:3] for line in lines[2:]] == [["short", queue, "native"] for queue in queues.QUEUES]
    for _, _, _, share, utilisation, mean_ms, p95_ms, drops, marks in lines[2:]:
        assert share == "100.0%"
        assert float(utilisation[:-1]) > 50
        assert 0 < float(mean_ms) < float(p95_ms)
        assert float(drops) + float(marks) > 0


def test_the_hash_of_a_run_is_of_its_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {job.code for job in queues.jobs()}
    assert len(before) == len(queues.SITUATIONS) * len(queues.QUEUES) * len(queues.ENGINES)
    changed = {name: dataclasses.replace(one, rate_mbps=21.0) for name, one in queues.SITUATIONS.items()}
    monkeypatch.setattr(queues, "SITUATIONS", changed)
    assert before.isdisjoint(job.code for job in queues.jobs())

"""RFC 9743 in a form that takes seconds: one scenario of each of twelve suites of conf/experiment/rfc9743.yaml."""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

import yaml

QUICK: Final[dict[str, str]] = {
    "collapse": "loss-50",
    "bufferbloat": "4bdp",
    "loss": "four-flows-1bdp",
    "fairness": "1bdp",
    "convergence": "1bdp",
    "short-flows": "1bdp",
    "beside-reno": "1bdp",
    "beside-cubic": "1bdp",
    "beside-bbr": "1bdp",
    "wireless-loss": "loss-1",
    "codel": "one-flow",
    "transients": "outages",
}
"""The scenario of each suite."""


def read_quick_rfc9743(is_full: bool) -> dict[str, Any]:
    """Return a benchmark without competitors, in plain types: `QUICK`, or all suites that can be tested."""
    text = (resources.files("bbrgym.conf") / "experiment" / "rfc9743.yaml").read_text(encoding="utf-8")
    benchmark = yaml.safe_load(text)["benchmark"]
    suites = {name: suite for name, suite in benchmark["suites"].items() if "needs" not in suite}
    if not is_full:
        suites = {
            name: {**suites[name], "scenarios": {scenario: suites[name]["scenarios"][scenario]}}
            for name, scenario in QUICK.items()
        }
    return {"name": "rfc9743", "suites": suites, "seeds": [1, 2, 3], "warmup": benchmark["warmup"]}

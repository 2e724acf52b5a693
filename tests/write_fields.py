"""Write what the docstrings of Scenario and Flow say about the fields of the built envs/scenario.def: `make fields`.

With --check, write nothing and fail if a docstring is out of date.
"""

import argparse
import re
import sys
import textwrap
from pathlib import Path
from typing import Final

from bbrgym.checks import bounds_text
from bbrgym.envs.fields import FLOW_FIELDS, SCENARIO_FIELDS, Field

SOURCE: Final = Path(__file__).parents[1] / "envs" / "scenario.py"


def with_docstrings(source: str) -> str:
    """Return the source of envs/scenario.py with the docstrings of the fields as they are built now."""
    for kind, fields in (("Flow", FLOW_FIELDS), ("Scenario", SCENARIO_FIELDS)):
        text = "".join(_argument(name, field) for name, field in fields.items())
        arguments = re.compile(rf"(^class {kind}:\n.*?^    Args:\n)(.*?)(?=^\n)", re.MULTILINE | re.DOTALL)
        source, count = arguments.subn(lambda found, text=text: found[1] + text, source, count=1)
        assert count == 1, kind
    return source


def _argument(name: str, field: Field) -> str:
    range_text = bounds_text(**field.bounds)
    must = f" {'Values must' if field.kind == 'schedule' else 'Must'} be {range_text}." if range_text else ""
    return (
        textwrap.fill(
            f"{name}: {field.meaning}.{must}",
            width=120,
            initial_indent=" " * 8,
            subsequent_indent=" " * 12,
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a docstring is out of date")
    source = SOURCE.read_text("utf-8")
    written = with_docstrings(source)
    if parser.parse_args().check:
        if written != source:
            print("the docstrings of envs/scenario.py are out of date; run `make fields`")
        return int(written != source)
    SOURCE.write_text(written, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

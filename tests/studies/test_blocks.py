"""Blocks between marks, on pages that are written by hand."""

from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from studies import blocks

BEGIN, END = "<!-- begin: x -->", "<!-- end: x -->"
DOCUMENT = f"before\n{BEGIN}\nold\n{END}\nafter\n"


def test_a_block_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(DOCUMENT)
    assert blocks.marked("x")(str(document)) == document
    blocks.write_block(document, "x", "new")
    assert document.read_text() == DOCUMENT.replace("old", "new")


@pytest.mark.parametrize("text", ["no marks", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", DOCUMENT + DOCUMENT])
def test_a_page_must_have_the_marks(text: str, tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(text)
    with pytest.raises(ArgumentTypeError, match="must have one line <!-- begin: x -->"):
        blocks.marked("x")(str(document))
    with pytest.raises(ValueError, match="must have one line <!-- begin: x -->"):
        blocks.write_block(document, "x", "new")
    with pytest.raises(ArgumentTypeError, match="No such file"):
        blocks.marked("x")(str(tmp_path / "none.md"))

"""studies/front.py: the picture of the front page that moves."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from studies import front


def test_one_run_grows_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "SECONDS_PER_FRAME", 20.0)
    path = tmp_path / "front.webp"
    front.write_moving(path)
    with Image.open(path) as picture:
        assert (picture.format, picture.n_frames) == ("WEBP", 4)  # type: ignore[attr-defined]
        frames = []
        for place in range(4):
            picture.seek(place)
            frames.append(np.asarray(picture.convert("RGB")).astype(int))
    assert len({frame.shape for frame in frames}) == 1
    blue, orange = ([0, 0x72, 0xB2], [0xE6, 0x9F, 0])
    counts = [[int((frame == colour).all(axis=2).sum()) for colour in (blue, orange)] for frame in frames]
    assert counts[0][0] < counts[1][0]
    assert counts[2][1] < counts[3][1]
    assert counts[0][1] == counts[3][0] == 0
    monkeypatch.setattr(front, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="at most 1,000 bytes"):
        front.write_moving(path)


def test_the_front_page_loads_fast() -> None:
    path = front.PAGE / "front.webp"
    assert path.stat().st_size <= front.MOST_BYTES
    with Image.open(path) as picture:
        assert picture.is_animated  # type: ignore[attr-defined]

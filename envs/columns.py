"""The columns of an engine's rows: names, units and meaning. The list itself is `envs/columns.def`."""

from __future__ import annotations

from typing import Final

from bbrgym import _native


class Columns(dict[str, str]):
    """The columns of a row, in their order: the name of each with its unit and meaning."""

    def index(self, name: str) -> int:
        """Return the position of a column in the row; raise ValueError if the row does not have it."""
        return list(self).index(name)


FLOW_COLUMNS: Final = Columns(_native.flow_columns())
"""One row per flow and step: what the transport measures with any controller, then the controller's own metrics."""

LINK_COLUMNS: Final = Columns(_native.link_columns())
"""One row per step for the bottleneck link."""

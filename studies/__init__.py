"""Scripts that measure, and that make the pages of docs/results. Run them from the root of a checkout."""

import bbrgym.interruption  # noqa: F401  first: the scripts handle Ctrl-C from their first import on

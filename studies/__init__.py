"""Scripts that measure, and that make the pages of docs/results. Run them from the root of a checkout."""

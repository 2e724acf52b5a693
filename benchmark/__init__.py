"""Compare competitors over scenarios and seeds: run, tables, statistics, plots, report."""

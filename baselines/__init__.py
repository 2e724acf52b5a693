"""Hand-coded congestion controllers (C++ in `cc/`), and what compares them: benchmark, metrics, statistics, report."""

"""Long, seeded runs against hangs, leaks, crashes and tests that check nothing: `make storm`, `fuzz`, `mutants`."""

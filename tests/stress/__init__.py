"""Long, seeded runs against crashes and against tests that check nothing: `make fuzz`, `make mutants`."""

"""The league: the learned policy against every algorithm, over several suites."""

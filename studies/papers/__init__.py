"""The experiments of the papers: run them, compare with what was published, write the page."""

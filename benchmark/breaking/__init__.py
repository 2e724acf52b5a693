"""Where does a controller fail: search a box of paths, shrink what is found, and say it in words (docs/break.md)."""

"""Registers the engine "fake" for all tests."""

import fake_engine  # noqa: F401

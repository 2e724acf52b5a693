"""Marks that several test files share."""

import importlib.util

import pytest

needs_ns3 = pytest.mark.skipif(importlib.util.find_spec("bbrgym._ns3") is None, reason="bbrgym was built without ns-3")

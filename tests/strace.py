"""Tests whose daemon runs under strace, which makes its calls fail or wait."""

from __future__ import annotations

import shutil

import pytest

__all__ = ["needs_strace"]

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: no fault can be injected"
)

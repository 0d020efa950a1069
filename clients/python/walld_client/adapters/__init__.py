"""Adapters: one line in a program that already talks to a model.

Owns: `tee`. Refuses: importing any SDK; each adapter is a module of its own, imported by the
program that has its SDK (`walld_client.adapters.httpx2`, `.anthropic`, ...).
"""

from __future__ import annotations

from walld_client.adapters.frameworks.teeing import tee

__all__ = ["tee"]

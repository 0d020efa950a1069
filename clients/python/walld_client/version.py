"""The client's own name and version. Owns: one string each; refuses all else."""

from __future__ import annotations

__all__ = ["CLIENT_NAME", "VERSION"]

VERSION = "0.2.0.dev0"
CLIENT_NAME = f"walld-client-python {VERSION}"
"""What Hello carries, for the daemon's log."""

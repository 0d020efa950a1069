"""walld: a sidecar that keeps what an AI agent said, whatever dies."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.2.0.dev0"

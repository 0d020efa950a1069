"""Errors for adapters whose SDK is not installed: which extra to install.

Owns: the words of that error. Refuses: importing any SDK.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["needs"]


@contextmanager
def needs(extra: str, *packages: str) -> Iterator[None]:
    """Around the imports of packages that this extra of walld-client installs.

    What they themselves miss is their own trouble, in their own words.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] not in packages:
            raise
        text = f"no module {missing!r}: pip install 'walld-client[{extra}]'"
        raise ModuleNotFoundError(text, name=missing) from None

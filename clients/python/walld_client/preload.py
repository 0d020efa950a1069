"""Loads all of the client but its adapters, when it is imported.

For a program that cannot read the files of this package later: it takes another user or another
root, or they are replaced while it runs. Owns: the loading. Refuses: names of its own.
"""

from __future__ import annotations

import importlib

from walld_client.first_use import loading

__all__: list[str] = []

with loading():
    # What is switched off has a twin of each client, and so imports all that they use.
    for _name in ("aio_null", "query.offline", "session.store_repair"):
        importlib.import_module(f"walld_client.{_name}")

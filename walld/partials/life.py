"""The life of a partial's file: its states, and which one may follow which.

Owns: the table. Refuses: the files (`store.py`), and which stands where
(`engine/partial_index.py`).

Before it has a file a reply is live, or an orphan: that is the stream's life (`engine/stream.py`),
and one that goes on behind its partial has both.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["EDGES", "Life"]


class Life(Enum):
    """Of the file of one name: (uid, session name, stream name)."""

    NONE = auto()
    """No file that anybody knows of."""
    DOUBTED = auto()
    """It was being made, and that failed or its owner came back: it may lie there."""
    KEPT = auto()
    """It lies there, durably, and the reply is read from it."""
    LEFT = auto()
    """Its reply moved to another session, where a later file has all of it."""
    UNWANTED = auto()
    """Its reply is done with: no question finds it, and it goes once its tombstone is synced."""


EDGES: Final[dict[Life, frozenset[Life]]] = {
    # A start may find it with its tombstone beside it, killed between the two (K3).
    Life.NONE: frozenset({Life.NONE, Life.DOUBTED, Life.KEPT}),
    Life.DOUBTED: frozenset({Life.NONE, Life.DOUBTED, Life.KEPT, Life.LEFT}),
    # Made anew; set aside as damaged, or removed by somebody else.
    Life.KEPT: frozenset({Life.NONE, Life.KEPT, Life.LEFT, Life.UNWANTED}),
    # Its reply moved back and was kept there; or ended before this one was removed.
    Life.LEFT: frozenset({Life.NONE, Life.DOUBTED, Life.KEPT, Life.UNWANTED}),
    # Nothing gets its name before it is gone.
    Life.UNWANTED: frozenset({Life.NONE}),
}

"""Labels of a session's entries: the last one that was given to each.

Owns: which label holds. Refuses: whether an entry may be labelled (`references.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld.sessions.state.events import check_payload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walld.sessions.state.events import Event

__all__ = ["labels_of"]


def labels_of(events: Sequence[Event]) -> dict[str, str]:
    """Entry id -> its label, the last one given; one that was taken off is none."""
    labels: dict[str, str] = {}
    for event in events:
        if event.type == "label" and check_payload(event.type, event.payload) is None:
            target, text = event.payload["target"], event.payload.get("text")
            labels.pop(target, None)
            if text is not None:
                labels[target] = text
    return labels

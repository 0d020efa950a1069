"""The counts as JSON lines and as one Markdown table, and whether walld kept its word.

Owns: what a cell says. Refuses: running anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .judge import Counts
from .stores import CLASSES

__all__ = ["Row", "broken_promises", "markdown", "read_rows"]

_PROMISED = {entry.name: entry.keeps for entry in CLASSES}


@dataclass(frozen=True)
class Row:
    """One fault, one store in one class."""

    fault: str
    store: str
    counts: Counts

    @property
    def is_promised(self) -> bool:
        """Its manual says that what it acknowledged outlives this."""
        return any(self.fault.startswith(kind) for kind in _PROMISED[self.store])

    def json(self) -> str:
        return json.dumps({"fault": self.fault, "store": self.store, **asdict(self.counts)})

    def line(self) -> str:
        """All of it, for a reader who waits."""
        shown = {name: value for name, value in asdict(self.counts).items() if value}
        text = ", ".join(f"{name} {value:,}" for name, value in shown.items())
        return f"{self.fault}: {self.store}: {text}"

    def cell(self) -> str:
        """Trials that lost what was acknowledged: how much of all of it; what else went wrong.

        In brackets where its manual does not promise more.
        """
        counts = self.counts
        parts = [self._lost()]
        if counts.oldest_ms:
            parts.append(f"{counts.oldest_ms / 1000:.1f} s")
        others = ("altered", "glued", "doubled", "reordered", "refused")
        parts += [f"{getattr(counts, name):,} {name}" for name in others if getattr(counts, name)]
        if counts.revived:
            parts.append(f"{counts.revived} restarted")
        if counts.silent:
            parts.append(f"{counts.silent} silent" if counts.said else "silent")
        text = ", ".join(parts)
        return text if self.is_promised else f"({text})"

    def _lost(self) -> str:
        counts = self.counts
        if not counts.lost:
            return "0"
        share = 100 * counts.lost / counts.acked
        much = f"{share:.0f} %" if share >= 1 else f"{counts.lost:,} events"
        return f"{counts.trials_with_loss}: {much}"


def read_rows(path: Path) -> list[Row]:
    """What earlier runs have appended there; the counts of a pair are added up."""
    rows: dict[tuple[str, str], Row] = {}
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        name = fields.pop("fault"), fields.pop("store")
        rows.setdefault(name, Row(*name, Counts())).counts.add(Counts(**fields))
    return list(rows.values())


def markdown(rows: Sequence[Row]) -> str:
    """A line for each fault, a column for each store and class."""
    faults = list(dict.fromkeys(row.fault for row in rows))
    stores = list(dict.fromkeys(row.store for row in rows))
    cells = {(row.fault, row.store): row.cell() for row in rows}
    lines = ["| | " + " | ".join(stores) + " |", "|---" * (len(stores) + 1) + "|"]
    for fault in faults:
        found = [cells.get((fault, store), "-") for store in stores]
        lines.append(f"| {fault} | " + " | ".join(found) + " |")
    return "\n".join(lines)


def broken_promises(rows: Iterable[Row]) -> list[str]:
    """Of walld's own: what it acknowledged is there, or it says what is not; nothing is changed."""
    broken = []
    for row in rows:
        counts = row.counts
        if not row.store.startswith("walld"):
            continue
        is_wrong = counts.altered + counts.glued + counts.doubled + counts.reordered
        is_lost = counts.silent if row.fault == "one bit flipped" else counts.lost
        if is_wrong or (is_lost and row.is_promised) or counts.refused or counts.revived:
            broken.append(row.line())
    return broken

"""What was recorded against what is measured: worse, better, or as it was.

A measure is a number (fewer is better), a list of names (only those may be there), a list of
circles (each within one that is recorded), or a table of such, where what is missing is none.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, cast

__all__ = ["Change", "Measure", "compare", "total"]

Measure: TypeAlias = "int | list[str] | list[list[str]] | dict[str, Measure]"


class Change(NamedTuple):
    """Sentences on what is no more as recorded."""

    worse: list[str]
    better: list[str]


def compare(name: str, recorded: Measure, measured: Measure) -> Change:
    """Where they differ; both are of one kind."""
    assert type(recorded) is type(measured), (name, recorded, measured)
    worse: list[str] = []
    better: list[str] = []
    match measured:
        case int():
            assert isinstance(recorded, int)
            if measured != recorded:
                side = worse if measured > recorded else better
                side.append(f"{name}: {measured}, recorded are {recorded}")
        case dict():
            assert isinstance(recorded, dict)
            for key in sorted({*recorded, *measured}):
                there = measured.get(key, recorded.get(key))
                assert there is not None
                none = type(there)()
                inner = compare(f"{name}: {key}", recorded.get(key, none), measured.get(key, none))
                worse += inner.worse
                better += inner.better
        case list():
            assert isinstance(recorded, list)
            before, now = _groups(recorded), _groups(measured)
            worse += [
                f"{name}: {_named(group)} is not recorded"
                for group in now
                if not any(group <= other for other in before)
            ]
            better += [
                f"{name}: {_named(group)} is recorded and no more so"
                for group in before
                if not any(group <= other for other in now)
            ]
    return Change(worse, better)


def total(measured: Measure) -> int:
    """How much of it there is, whatever the names are: what a move alone does not raise."""
    match measured:
        case int():
            return measured
        case dict():
            return sum(total(inner) for inner in measured.values())
        case _:
            return sum(len(group) for group in _groups(measured))


def _groups(names: list[str] | list[list[str]]) -> list[frozenset[str]]:
    """A name is a circle of one."""
    of_one = [[name] if isinstance(name, str) else name for name in cast("list[object]", names)]
    return [frozenset(cast("list[str]", group)) for group in of_one]


def _named(group: frozenset[str]) -> str:
    return ", ".join(sorted(group))

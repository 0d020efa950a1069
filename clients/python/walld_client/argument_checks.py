"""Checks arguments of public calls before anything is sent.

Owns: the kinds that the signatures of a session's calls are declared in, and the errors that name
the argument, what it got and what it takes. Refuses: what an entry may hold (the daemon says).

A str is a list of letters to Python, an int is an open file, a dict is an empty list: taken as they
come they would be done, and none of it is what was meant. `as_declared` reads a call's signature;
an argument declared as `Any` is not looked at.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import update_wrapper
from types import NoneType
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar, get_args, get_origin
from typing import get_type_hints as hints_of

from walld_client.encoding.value_encoding import brief
from walld_client.ids import Entry, checked_id, id_in

__all__ = [
    "SECONDS",
    "Beginning",
    "Count",
    "Dict",
    "Dicts",
    "EntryId",
    "ExitCode",
    "FileHashes",
    "Files",
    "Ident",
    "Kind",
    "Name",
    "OnlyWith",
    "Path",
    "PathOrDict",
    "Place",
    "Seconds",
    "Seq",
    "Source",
    "Sources",
    "Time",
    "as_declared",
    "checked_files",
    "checked_list",
    "checked_word",
    "rules_in",
    "wrong",
]

P = ParamSpec("P")
T = TypeVar("T")
_SEQ_MAX = 2**53 - 1
"""JSON in every language holds such an int as it is."""
_SECONDS_MAX = 10**9
_ONE = (str, bytes, bytearray, memoryview, Mapping, os.PathLike)


class OnlyWith(NamedTuple):
    """An argument that belongs to some words of another one: kept beside others it means nothing.

    It stands in the annotation of the first, beside what that is declared as.
    """

    other: str
    words: tuple[str, ...]

    def check(self, name: str, given: Mapping[str, Any]) -> None:
        """Raises ValueError. given: the arguments by name."""
        word = given.get(self.other)
        if given.get(name) is not None and word not in self.words:
            allowed = " or ".join(self.words)
            raise ValueError(f"{name} is of {self.other} {allowed}, got it with {brief(word)}")


class Kind(NamedTuple):
    """What an argument may be. then: what else is looked at, where its type is right."""

    types: tuple[type, ...]
    wanted: str
    then: Callable[[Any, str], Any] | None = None
    is_optional: bool = False

    def of(self, value: Any, name: str) -> Any:
        """The value. Raises TypeError or ValueError."""
        if value is None and self.is_optional:
            return None
        is_bool = isinstance(value, bool) and bool not in self.types
        if self.types and (is_bool or not isinstance(value, self.types)):
            raise wrong(name, f"{self.wanted} or None" if self.is_optional else self.wanted, value)
        return value if self.then is None else self.then(value, name)


# --- what else is looked at -----------------------------------------------------------------------


def _between(least: int, most: int) -> Callable[[int, str], int]:
    def checked(value: int, name: str) -> int:
        if not least <= value <= most:
            raise ValueError(f"{name} must be {least} to {most}, got {brief(value)}")
        return value

    return checked


def _ending(value: float, name: str) -> float:
    """How long to wait: there is an end to it. Below 0: no longer."""
    if not -_SECONDS_MAX <= value <= _SECONDS_MAX:
        limit = f"a finite number of seconds, {_SECONDS_MAX} at most"
        raise ValueError(f"{name} must be {limit}, got {brief(value)}")
    return value


def _time(value: float, name: str) -> float:
    """A moment: JSON has no other number for it."""
    if not 0 <= value <= _SEQ_MAX:
        limit = f"seconds since 1970, 0 to {_SEQ_MAX}"
        raise ValueError(f"{name} must be {limit}, got {brief(value)}")
    return value


def _beginning(value: str, name: str) -> str:
    return checked_id(value, name) if value else value


def _place(value: str | Entry, name: str) -> str | Entry:
    return value if value == "" else id_in(value, name)


def checked_list(value: Iterable[Any], name: str, of: str, *kinds: type) -> list[Any]:
    """Several, each of those kinds, and not one that Python would take apart."""
    if isinstance(value, _ONE) or not isinstance(value, Iterable):
        raise wrong(name, f"a list of {of}", value)
    listed = list(value)
    for one in listed:
        if not isinstance(one, kinds):
            raise wrong(name, f"a list of {of}", one, " in it")
    return listed


def checked_word(name: str, given: object, allowed: tuple[str, ...]) -> None:
    """One of a vocabulary."""
    if given not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {brief(given)}")


def checked_files(value: Iterable[Any], name: str = "files") -> list[str | os.PathLike[str]]:
    """Paths of files: one that is given alone would be a path for each letter."""
    return checked_list(value, name, "paths", str, os.PathLike)


def _dicts(value: Iterable[Any], name: str) -> list[Any]:
    return checked_list(value, name, "dicts", Mapping)


def _sources(value: Iterable[Any], name: str) -> list[Any]:
    kinds = (bytes, bytearray, memoryview, str, os.PathLike, Mapping)
    return checked_list(value, name, "bytes, paths or dicts", *kinds)


def _file_hashes(value: Any, name: str) -> Any:
    return value if isinstance(value, Mapping) else checked_files(value, name)


# --- the kinds ------------------------------------------------------------------------------------

_BYTES = (bytes, bytearray, memoryview)
_Bytes = bytes | bytearray | memoryview
_Path = str | os.PathLike[str]

Ident = Annotated[str, Kind((), "a str", checked_id)]
EntryId = Annotated[str | Entry, Kind((), "a str or an Entry", id_in)]
"""Of an entry, or what has the id of one: a turn, a call. The call gets the id."""
Name = Annotated[str, Kind((str,), "a str", checked_id)]
"""A word that travels as it is: short, and UTF-8."""
Beginning = Annotated[str, Kind((str,), "a str", _beginning)]
"""What names begin with; nothing is the beginning of all."""
Place = Annotated[str | Entry, Kind((str, Entry), "a str", _place)]
"""An entry's id; nothing is before the first one."""
Seq = Annotated[int, Kind((int,), "an int", _between(0, _SEQ_MAX))]
Count = Annotated[int, Kind((int,), "an int", _between(1, _SEQ_MAX))]
ExitCode = Annotated[int, Kind((int,), "an int", _between(-(2**31), 2**32 - 1))]
"""Of a process: a signal's is below 0 in Python, and Windows has 32 bits."""
SECONDS = Kind((int, float), "a number of seconds", _ending)
Seconds = Annotated[float, SECONDS]
Time = Annotated[float, Kind((int, float), "seconds since 1970", _time)]
Dict = Annotated[Mapping[str, Any], Kind((Mapping,), "a dict")]
Dicts = Annotated[Sequence[Mapping[str, Any]], Kind((), "a list of dicts", _dicts)]
Path = Annotated[_Path, Kind((str, os.PathLike), "a path")]
PathOrDict = Annotated[
    _Path | Mapping[str, Any], Kind((str, os.PathLike, Mapping), "a path or a dict")
]
Files = Annotated[Iterable[_Path], Kind((), "a list of paths", checked_files)]
FileHashes = Annotated[
    Mapping[str, str | None] | Iterable[_Path], Kind((), "a list of paths", _file_hashes)
]
Source = Annotated[_Bytes | _Path, Kind((*_BYTES, str, os.PathLike), "bytes or a path")]
"""Bytes, or the path of a file."""
Sources = Annotated[Sequence[_Bytes | _Path | Mapping[str, Any]], Kind((), "a list", _sources)]
_PLAIN = {bool: Kind((bool,), "True or False"), str: Kind((str,), "a str")}


# --- signatures -----------------------------------------------------------------------------------


def as_declared(call: Callable[P, T]) -> Callable[P, T]:
    """The call, of which every argument is of the kind that its signature declares.

    Raises TypeError or ValueError before anything of it is done.
    """
    places: list[tuple[str, Kind | None]] = []
    kinds: dict[str, Kind | None] = {}
    rules: dict[str, OnlyWith] = {}
    taken: Callable[..., T] = call

    def checked(*given: P.args, **named: P.kwargs) -> T:
        if not places:
            _read(call, places, kinds, rules)
        told = [
            value if kind is None else kind.of(value, name)
            for value, (name, kind) in zip(given, places, strict=False)
        ]
        for name, value in named.items():
            kind = kinds.get(name)
            if kind is not None:
                named[name] = kind.of(value, name)
        if rules:
            by_name = dict(zip((name for name, _ in places), told, strict=False)) | named
            for name, rule in rules.items():
                rule.check(name, by_name)
        return taken(*told, *given[len(told) :], **named)  # too many: Python says so

    return update_wrapper(checked, call)


def _read(
    call: Callable[..., object],
    places: list[tuple[str, Kind | None]],
    kinds: dict[str, Kind | None],
    rules: dict[str, OnlyWith],
) -> None:
    """The kinds of a call's arguments, by place and by name, and which go with which."""
    hints = hints_of(call, include_extras=True)
    for name, one in inspect.signature(call).parameters.items():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        kind = _kind(hint := hints.get(name, Any))
        for rule in rules_in(hint):
            rules[name] = rule
        if one.kind is not one.KEYWORD_ONLY:
            places.append((name, kind))
        if one.kind is not one.POSITIONAL_ONLY:
            kinds[name] = kind


def _kind(hint: Any) -> Kind | None:
    """What a hint declares; None where that is left open."""
    for one in getattr(hint, "__metadata__", ()):
        if isinstance(one, Kind):
            return one
    if isinstance(hint, type):
        return _PLAIN.get(hint)
    within = get_args(hint)
    if get_origin(hint) is None or NoneType not in within or len(within) != 2:
        return None
    kind = _kind(next(one for one in within if one is not NoneType))
    return None if kind is None else kind._replace(is_optional=True)


def rules_in(hint: Any) -> list[OnlyWith]:
    """Of an argument that is declared so, also where it may be None."""
    found = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, OnlyWith)]
    within = get_args(hint) if get_origin(hint) is not Annotated else ()
    return [*found, *(rule for one in within for rule in rules_in(one))]


def wrong(name: str, wanted: str, got: object, where: str = "") -> TypeError:
    """What is raised for an argument of another kind."""
    kind = "" if got is None else f"{type(got).__name__} "
    return TypeError(f"{name} must be {wanted}, got {kind}{brief(got)}{where}")

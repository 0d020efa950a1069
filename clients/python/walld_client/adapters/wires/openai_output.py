"""Output items of OpenAI Responses: what was said of each so far. No I/O.

Owns: places in the output, texts and calls heard there. Refuses: events (`openai_responses.py`).

An item that is done, and the whole response behind it, repeat what the deltas have said; they may
also hold what none has, or the rest of what some have begun. A text is known by its place: item and
part. Proxies give every item the index 0, leave indices or parts out, or count items anew at the
end: there a text is known by its words. Item ids tell apart what shares an index.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from walld_client.adapters.wires.call_names import CallNames
from walld_client.encoding import wtf8

__all__ = ["Calls", "Places", "Repeats", "Texts", "Unsaid"]

Place = tuple[str, Any, Any]
"""Kind of the text, its item, its part."""


class Places:
    """Items of the output, by index; by id where another item has the index."""

    def __init__(self) -> None:
        self._of: dict[str, Any] = {}
        self._taken: set[Any] = set()
        self._no_ids: set[str] = set()
        """What several items have for an id: it names none of them."""

    def add(self, index: Any, item_id: Any) -> Any:
        """An item begins; its place."""
        if not isinstance(item_id, str) or not item_id:
            self._taken.add(index)
            return index
        if item_id in self._of and index not in self._taken:
            del self._of[item_id]
            self._no_ids.add(item_id)
        if item_id in self._no_ids:
            self._taken.add(index)
            return index
        if item_id not in self._of:
            self._of[item_id] = item_id if index in self._taken else index
            self._taken.add(index)
        return self._of[item_id]

    def has(self, item_id: Any) -> bool:
        """Has that item begun?"""
        return item_id in self._of or item_id in self._no_ids

    def find(self, item_id: Any, index: Any) -> Any:
        """That of the item which an event names."""
        return self._of.get(item_id, index) if isinstance(item_id, str) else index


class Texts:
    """Pieces by place."""

    def __init__(self) -> None:
        self.pieces: dict[Place, list[str]] = {}
        self.newest: Place | None = None
        """Where the last was said, if nothing but texts was said behind it."""

    def add(self, place: Place, piece: str) -> None:
        """A piece was said."""
        self.newest = place
        pieces = self.pieces.get(place)
        if pieces is None:
            self.pieces[place] = [piece]
        else:
            pieces.append(piece)


class Unsaid(NamedTuple):
    """What of a text has not been said. is_next: it can be said now, in its place; else it is the
    whole text, of which something else was heard, or behind which something else was said.
    """

    text: str
    is_next: bool = True


class Repeats:
    """One telling of what is done, an item or all of them: each thing heard is told once in it."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._pieces = texts.pieces
        self._rest: dict[Place, str] = {}
        """What of a place has not been told again, once something of it has."""

    def unsaid(self, kind: str, item: Any, part: Any, text: str) -> Unsaid:
        """Nothing, of what was heard there, or anywhere in these words. What was heard there in
        other words, and is longer here, has a rest.
        """
        text = wtf8.join(text)
        place = (kind, item, part)
        others = [one for one in self._pieces if one[0] == kind and one != place]
        is_there = place in self._pieces
        if is_there and self._left(place).startswith(text):
            self._rest[place] = self._left(place)[len(text) :]
            return _NOTHING
        for other in others:
            if self._has_words(other, text):
                self._rest[other] = self._left(other)[len(text) :]
                return _NOTHING
        if is_there:
            return self._longer(place, text)
        return _NOTHING if any(self._may_be(other, item) for other in others) else Unsaid(text)

    def _longer(self, place: Place, text: str) -> Unsaid:
        heard = self._whole(place)
        if place in self._rest or len(text.strip()) <= len(heard.strip()):
            return _NOTHING
        self._rest[place] = ""
        if text.startswith(heard) and self._texts.newest == place:
            return Unsaid(text[len(heard) :])
        return Unsaid(text, is_next=False)

    def _left(self, place: Place) -> str:
        rest = self._rest.get(place)
        return self._whole(place) if rest is None else rest

    def _has_words(self, place: Place, text: str) -> bool:
        if place in self._rest or place[1] is None:
            return bool(text) and self._left(place).startswith(text)
        return self._whole(place).strip() == text.strip()

    def _may_be(self, place: Place, item: Any) -> bool:
        """Something was heard of which only the item is known, or nothing: in other words."""
        _, heard_item, heard_part = place
        is_loose = heard_item is None or (heard_item == item and heard_part is None)
        if not is_loose or place in self._rest:
            return False
        self._rest[place] = ""
        return True

    def _whole(self, place: Place) -> str:
        return wtf8.join("".join(self._pieces[place]))


_NOTHING = Unsaid("")


class Calls:
    """The calls of the output, by place."""

    def __init__(self) -> None:
        self._made = CallNames()
        self._at: dict[Any, str] = {}
        """The newest call of each place."""
        self._given: dict[str, str] = {}
        """Their provider's ids."""
        self._names: dict[str, str] = {}
        self._arguments: dict[str, list[str]] = {}
        self._done: dict[str, Any] = {}
        """Calls whose item is done, and the id that it had."""

    def add(self, place: Any, given: str, name: str) -> tuple[str, dict[str, str]]:
        """A call begins: what it is called, and what is said of it."""
        call_id = self._at.get(place, "")
        if self._given.get(call_id) == given and call_id not in self._done:
            return call_id, {}  # the same, told again
        call_id, about = self._made.begin(given)
        self._at[place] = call_id
        self._given[call_id] = given
        self._names[call_id] = name
        return call_id, about

    def at(self, place: Any) -> str | None:
        """The call there."""
        return self._at.get(place)

    def hear(self, call_id: str, arguments: str) -> None:
        """A piece of its arguments."""
        self._arguments.setdefault(call_id, []).append(arguments)

    def has_heard(self, call_id: str) -> bool:
        """Has anything of its arguments come?"""
        return call_id in self._arguments

    def lacks(self, call_id: str, arguments: object) -> bool:
        """Is something of these arguments, or all, still to be said? Heard was the rest alone."""
        heard = "".join(self._arguments.get(call_id, ()))
        if call_id not in self._arguments or not isinstance(arguments, str):
            return call_id not in self._arguments
        return heard != arguments and arguments.endswith(heard)

    def rest(self, call_id: str, arguments: str) -> str:
        """What of these was not heard yet, where their beginning was."""
        heard = "".join(self._arguments.get(call_id, ()))
        return arguments[len(heard) :] if heard and arguments.startswith(heard) else ""

    def hear_whole(self, call_id: str, arguments: str) -> None:
        """All of its arguments."""
        self._arguments[call_id] = [arguments]

    def is_renamed(self, call_id: str, name: str) -> bool:
        """Is that another name than it was begun with?"""
        before, self._names[call_id] = self._names.get(call_id), name
        return before not in (None, name)

    def known(self, place: Any, item: dict[str, Any], told: set[str] | None) -> str | None:
        """The call that an item which is done tells again; None: none.

        told: the item stands in the whole response, which has told these before it. Its order is
        its own, and so may be its ids: a call that was heard has the same name and arguments then.
        """
        call_id = self._find(place, item, told)
        if call_id is not None and told is not None:
            told.add(call_id)
        elif call_id is not None:
            self._done[call_id] = item.get("id")
        return call_id

    def _find(self, place: Any, item: dict[str, Any], told: set[str] | None) -> str | None:
        given, here = item.get("call_id") or item.get("id"), self._at.get(place)
        if not isinstance(given, str):
            return here
        before = self._done.keys() if told is None else told
        of = [one for one, its in self._given.items() if its == given]
        if told is not None and len(of) > 1:
            same = [one for one in of if one not in told and self._is_told_by(one, item)]
            if same:
                return same[0]
        if here is not None and self._given[here] == given:
            is_again = told is None and self._done.get(here, "") == item.get("id")
            if here not in before or is_again:
                return here
        if of:
            # Where each of them is told already it is another one of the same id.
            return next((one for one in of if one not in before), None)
        if told is None:
            return here
        heard = (one for one in self._arguments if one not in told)
        return next((one for one in heard if self._is_told_by(one, item)), None)

    def _is_told_by(self, call_id: str, item: dict[str, Any]) -> bool:
        """In the same words."""
        arguments = item.get("arguments") or item.get("input")
        heard = "".join(self._arguments.get(call_id, ()))
        return self._names[call_id] == item.get("name") and heard == arguments

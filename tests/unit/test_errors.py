"""The tree of errors that is drawn is the one that an `except` meets."""

from __future__ import annotations

import inspect
import re

from walld import errors


def drawn() -> dict[str, str]:
    """Each error in the drawing at the head of the module, and the one that it hangs on."""
    path: list[str] = []
    parents = {}
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"    ((?:[|] {3})*)(\+-- )?([A-Z]\w+)", line):
            depth = len(found[1]) // 4 + bool(found[2])
            path[depth:] = [found[3]]
            parents[found[3]] = path[depth - 1] if depth else ""
    return parents


def test_the_drawing_is_the_tree_of_the_classes() -> None:
    classes = {name: getattr(errors, name) for name in errors.__all__}
    bases = {
        name: next((base.__name__ for base in kind.__bases__ if base in classes.values()), "")
        for name, kind in classes.items()
    }
    assert drawn() == bases


def test_who_is_an_error_of_the_system_too_is_drawn_so() -> None:
    """Such a one is caught where a failed call is: that must be seen before it is raised."""
    noted = set(re.findall(r"([A-Z]\w+) .*\(an OSError, too\)", errors.__doc__ or ""))
    classes = inspect.getmembers(errors, inspect.isclass)
    assert noted == {name for name, kind in classes if issubclass(kind, OSError)}

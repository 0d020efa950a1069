"""What can be known of TypeScript without a parser: code without comments, and its imports.

Texts are scanned once: strings, templates and regular expressions are stepped over, so that nothing
in them passes for a comment.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping

__all__ = ["graph_of", "without_comments"]

_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]* | /\*.*?\*/)
    | (?P<string>"(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*')
    | (?P<regex>(?<![\w)\]}"'`/*])/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*)
    | (?P<template>`)
    | (?P<open>\{) | (?P<close>\})
    """,
    re.VERBOSE | re.DOTALL,
)
_TEMPLATE = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*(?P<end>`|\$\{)", re.DOTALL)
_BEFORE_REGEX = re.compile(r"(?:^|[-(,=:\[!&|?{};+*%~^<>]|\b(?:return|typeof|case|of|in))\s*$")
_IMPORTS = (
    re.compile(r"^[ \t]*(?:import|export)\b[^;'\"]*?\bfrom\s*[\"']([^\"']+)[\"']", re.MULTILINE),
    re.compile(r"^[ \t]*import\s*[\"']([^\"']+)[\"']", re.MULTILINE),
    re.compile(r"\bimport\s*\(\s*[\"']([^\"']+)[\"']"),
)


def without_comments(text: str) -> str:
    """The text with its comments gone; lines stay where they are."""
    return "".join(_kept(text))


def _kept(text: str) -> Iterator[str]:
    at = 0
    depths: list[int] = []
    """Of each template that is open: how many braces are, within its substitution."""
    while token := _TOKEN.search(text, at):
        start, end = token.span()
        if token["regex"] and not _BEFORE_REGEX.search(text[max(0, start - 40) : start]):
            end = start + 1  # a division
        yield text[at:start]
        if token["comment"]:
            yield "\n" * token[0].count("\n") or " "
        elif token["template"] or (token["close"] and depths and not depths[-1]):
            if token["close"]:
                depths.pop()
            rest = _TEMPLATE.match(text, end)
            assert rest, f"a template that never ends: {text[start : start + 40]!r}"
            end = rest.end()
            if rest["end"] == "${":
                depths.append(0)
            yield text[start:end]
        else:
            if depths and (token["open"] or token["close"]):
                depths[-1] += 1 if token["open"] else -1
            yield text[start:end]
        at = end
    yield text[at:]


def graph_of(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """Imported files by importing file, `import type` and `import()` too; of `texts` alone."""
    return {path: set(_imported(path, text, texts)) - {path} for path, text in texts.items()}


def _imported(path: str, text: str, paths: Collection[str]) -> Iterator[str]:
    code = without_comments(text)
    for pattern in _IMPORTS:
        for target in pattern.findall(code):
            if target.startswith("."):
                base = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
                stem = re.sub(r"\.[jt]s$", "", base)
                candidates = (base, f"{stem}.ts", f"{stem}/index.ts")
                found = [name for name in candidates if name in paths]
                assert found, f"{path} imports {target}, which is no file of the tree"
                yield found[0]

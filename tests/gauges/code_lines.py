"""Lines of code: no blank ones, no comments, no docstrings.

A string that stands alone is a docstring wherever it stands: below an attribute, too.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePosixPath

from gauges.source_tree import PRODUCT
from gauges.typescript import without_comments

__all__ = ["by_room", "code_lines"]

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(path: str, text: str) -> int:
    """How many lines of a Python or TypeScript file hold code."""
    if not path.endswith(".py"):
        return sum(bool(line.strip()) for line in without_comments(text).splitlines())
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text, path)):
        match node:
            case ast.Expr(value=ast.Constant(value=str()), end_lineno=int(end)):
                lines.difference_update(range(node.lineno, end + 1))
    return len(lines)


def by_room(texts: Mapping[str, str]) -> dict[str, int]:
    """Code lines by folder of the product; what else there is by its outermost folder."""
    found: Counter[str] = Counter()
    for path, text in texts.items():
        if path.endswith((".py", ".ts")):
            folder = str(PurePosixPath(path).parent)
            is_product = any(f"{folder}/".startswith(f"{product}/") for product in PRODUCT)
            found[folder if is_product else folder.split("/")[0]] += code_lines(path, text)
    return dict(sorted(found.items()))

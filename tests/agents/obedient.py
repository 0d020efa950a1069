"""An agent that does what a test writes: Python source in, the value of its last line out.

Spec (JSON, the first argument): socket, and optionally uid (to become before it connects), colour
("aio": `client` is that of an asyncio program, called as if it blocked) and any argument of
`walld_client.connect`. Each line of stdin is a JSON string of source, run with `client`
and what earlier lines left behind; each line of stdout is {"value": ...} or {"error": ...}.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import walld_client.preload  # another user may not be able to read it
import words


def run(source: str, space: dict[str, Any]) -> object:
    """Execute; the value of the last line where that is an expression."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "<test>", "exec"), space)
        return None
    tree.body.pop()
    exec(compile(tree, "<test>", "exec"), space)
    return eval(compile(ast.Expression(last.value), "<test>", "eval"), space)


def main() -> None:
    spec = json.loads(sys.argv[1])
    uid = spec.pop("uid", None)
    if uid is not None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    colour, path = spec.pop("colour", None), spec.pop("socket")
    client: Any = walld_client.connect(path, **spec) if colour is None else None
    if client is None:
        sys.path.append(str(Path(__file__).parents[1]))
        import colours

        client = colours.connect(colour, path, **spec)
    space: dict[str, Any] = {"client": client, "said": words.said}
    space |= {"walld_client": walld_client, "token": words.token}
    for line in sys.stdin:
        answer: dict[str, object] = {}
        try:
            answer["value"] = run(json.loads(line), space)
        except BaseException:
            answer["error"] = traceback.format_exc()
        print(json.dumps(answer, default=repr), flush=True)


if __name__ == "__main__":
    main()

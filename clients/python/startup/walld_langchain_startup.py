"""Attaches walld to LangChain by the environment alone.

Run by `walld_langchain.pth` at the start of an interpreter that has WALLD_LANGCHAIN in its
environment, and by no other. LangChain is not imported for it: once the program has imported the
module with LangChain's list of callbacks for all runs (`langchain_core.tracers.context`, there
before the first run), walld's is put into it.

It stands beside the package, so that starting does not import walld's client. Nothing here may
break a start or an import: what goes wrong is one line on stderr.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_LIST = "langchain_core.tracers.context"


def _attach() -> None:
    try:
        importlib.import_module("walld_client.adapters.langchain")
    except Exception as error:
        _complain(error)


def _complain(error: Exception) -> None:
    text = f"walld: WALLD_LANGCHAIN is set and nothing is recorded: {type(error).__name__}: {error}"
    if sys.stderr is not None:
        sys.stderr.write(text.replace("\n", " ") + "\n")


class _Awaiting(MetaPathFinder):
    """Finds nothing itself; knows when LangChain's list is there."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name != _LIST:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.loader is not None:
                _attach_behind(spec.loader)
        except Exception as error:
            _complain(error)
            return None
        return spec


def _attach_behind(loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        _attach()

    loader.exec_module = exec_module


def _start() -> None:
    if _LIST in sys.modules:
        _attach()
    elif not any(type(one).__name__ == _Awaiting.__name__ for one in sys.meta_path):
        sys.meta_path.insert(0, _Awaiting())


try:
    _start()
except Exception as error:
    _complain(error)

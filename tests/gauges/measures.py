"""All measures of this tree, by the names that `recorded/values.json` has.

Those of the tree's text take seconds of a processor; `passed` starts a daemon and an agent.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache

from daemon_process import environment

from gauges import (
    circles,
    code_lines,
    engine_writes,
    folders,
    module_names,
    passed_files,
    python_imports,
    typescript,
)
from gauges.passed_files import Passed
from gauges.ratchet import Measure
from gauges.source_tree import PRODUCT, ROOT, Module, modules_of, read, walk

__all__ = ["MEASURES", "long_files", "passed_now", "product_lines", "writes_now"]


@cache
def _product() -> list[str]:
    return walk(ROOT, PRODUCT)


@cache
def _modules() -> Mapping[str, Module]:
    return modules_of(read(ROOT, _product(), ".py"))


def _python_circles() -> Measure:
    return circles.circles(python_imports.graph_of(_modules()))


def _node_circles() -> Measure:
    return circles.circles(typescript.graph_of(read(ROOT, _product(), ".ts")))


def _crowded_folders() -> Measure:
    crowded: dict[str, Measure] = {**folders.crowded([*_product(), *walk(ROOT, ["tests"])])}
    return crowded


@cache
def writes_now() -> list[engine_writes.Write]:
    """Each place outside the engine that changes one of its objects."""
    return engine_writes.writes(_modules())


def _engine_writes() -> Measure:
    items = sum(write.is_item for write in writes_now())
    return {"attributes": len(writes_now()) - items, "items": items}


def _client_import() -> Measure:
    program = "import sys, walld_client; print(*sys.modules, sep='\\n')"
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    return sum(name.partition(".")[0] == "walld_client" for name in ran.stdout.split())


def _names_given_twice() -> Measure:
    twice: dict[str, Measure] = {**module_names.given_twice(_modules())}
    return twice


def _only_reexport() -> Measure:
    return module_names.only_reexport(_modules())


@cache
def passed_now() -> dict[str, dict[str, Passed]]:
    """What an append and a token pass."""
    return passed_files.measure()


def _passed() -> Measure:
    return {
        what: {whose: len(passed.files) for whose, passed in by_whom.items()}
        for what, by_whom in passed_now().items()
    }


def long_files() -> dict[str, int]:
    """Files of the product where one asks why they are so long."""
    return folders.long_files(_texts())


def product_lines() -> dict[str, int]:
    """Code lines by folder of the product, as they are now."""
    return code_lines.by_room(_texts())


def _texts() -> dict[str, str]:
    return {**read(ROOT, _product(), ".py"), **read(ROOT, _product(), ".ts")}


MEASURES: Mapping[str, Callable[[], Measure]] = {
    "circles, Python": _python_circles,
    "circles, Node": _node_circles,
    "folders of more than 20 files": _crowded_folders,
    "files passed": _passed,
    "engine changed from outside": _engine_writes,
    "modules that import walld_client loads": _client_import,
    "module names given twice": _names_given_twice,
    "modules that only re-export": _only_reexport,
}

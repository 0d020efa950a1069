"""`make sbom`: by what each distribution says it needs, and nothing of this machine."""

from __future__ import annotations

import json
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from daemon_process import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DAEMON_NEEDS = {"walld-client", "anyio", "msgspec", "prometheus-client", "uvloop"}


def closure(name: str) -> set[str]:
    """A distribution and all that it needs at run time, as installed here."""
    todo, found = [name], set[str]()
    while todo:
        name = canonicalize_name(todo.pop())
        if name not in found:
            found.add(name)
            wanted = map(Requirement, metadata.requires(name) or ())
            here = {"extra": ""}
            todo += [one.name for one in wanted if not one.marker or one.marker.evaluate(here)]
    return found


def test_the_bill_of_materials_is_what_a_user_installs(tmp_path: Path) -> None:
    path = tmp_path / "walld.cdx.json"
    command = ["make", "sbom", f"SBOM={path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "No matching distribution" in done.stderr:
        pytest.skip(f"no package index is to be had: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert str(ROOT) not in text
    told = json.loads(text)
    assert told["bomFormat"] == "CycloneDX"
    assert {canonicalize_name(one["name"]) for one in told["components"]} == closure("walld")
    assert all(one["version"] and one["licenses"] for one in told["components"])
    names = {one["ref"]: one.get("dependsOn", ()) for one in told["dependencies"]}
    of_walld = next(found for ref, found in names.items() if ref.startswith("walld=="))
    assert {canonicalize_name(ref.partition("==")[0]) for ref in of_walld} == DAEMON_NEEDS

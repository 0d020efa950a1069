"""`make test-install`: what a user gets, built from this tree and installed where nothing else is.

Owns: wheels, sdists and the npm package in a folder that goes with this; a bare venv for the
wheels and one for the sdists, in each of which `walld demo` must recover its reply; a bare folder
in which Node loads the client. Refuses: testing more of them, which the other suites do from the
tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PROJECTS: Final = {"walld-client": ROOT / "clients/python", "walld": ROOT}
NODE: Final = ROOT / "clients/node"
LICENSE: Final = (ROOT / "LICENSE").read_bytes()
SECONDS_MAX: Final = 300
_OF_THE_CALLER: Final = {"PYTHONPATH", "VIRTUAL_ENV", "NODE_PATH"}
LOADED: Final = """
import { connect } from "walld-client";
const client = connect("/nonexistent/socket");
if (typeof client.reply !== "function") throw new Error("connect() gave no client");
await client.close(0);
console.log("node " + process.version + " loads walld-client");
"""


def call(words: Sequence[str | Path], cwd: Path) -> str:
    """What it prints; SystemExit, with all it said, where it fails."""
    print("$", *words, flush=True)
    env = {name: value for name, value in os.environ.items() if name not in _OF_THE_CALLER}
    done = subprocess.run(
        words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{done.stdout}\ntest-install: {words[0]} ended with {done.returncode}")
    return done.stdout


def build(folder: Path) -> dict[str, list[Path]]:
    """Wheels and sdists, those of the client first."""
    built: dict[str, list[Path]] = {".whl": [], ".tar.gz": []}
    for name, project in PROJECTS.items():
        place = folder / name
        call([sys.executable, "-m", "hatchling", "build", "-d", place], project)
        for ending, found in built.items():
            [one] = place.glob(f"*{ending}")
            found.append(one)
            expect(LICENSE in files_named("LICENSE", one), f"{one.name} has no LICENSE of ours")
    return built


def files_named(name: str, archive: Path) -> list[bytes]:
    """The files of an archive that have this name, whatever folder they are in."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return [wheel.read(one) for one in wheel.namelist() if Path(one).name == name]
    with tarfile.open(archive) as sdist:
        members = [one for one in sdist if one.isfile() and Path(one.name).name == name]
        return [file.read() for one in members if (file := sdist.extractfile(one))]


def expect(holds: bool, trouble: str) -> None:
    if not holds:
        sys.exit(f"test-install: {trouble}")


def install(folder: Path, packages: Sequence[Path]) -> None:
    """Into a venv of its own, and the demo there."""
    call([sys.executable, "-m", "venv", folder], folder.parent)
    python = folder / "bin/python"
    pip: list[str | Path] = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    call([*pip, "install", *packages], folder)
    call([*pip, "check"], folder)
    where = call([python, "-c", "import walld; print(walld.__file__)"], folder)
    expect(where.startswith(str(folder)), f"walld was imported from {where}")
    print(call([folder / "bin/walld", "demo"], folder))


def node(folder: Path) -> None:
    """Packed from a copy: `make test-node` may use the tree's node_modules at the same time."""
    folder.mkdir()
    copy, bare = folder / "copy", folder / "bare"
    left_out = shutil.ignore_patterns("node_modules", "dist", "build")
    shutil.copytree(NODE, copy, ignore=left_out)
    quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
    call(["npm", "ci", *quiet], copy)
    call(["npm", "pack", *quiet, "--pack-destination", folder], copy)
    [packed] = folder.glob("*.tgz")
    expect(LICENSE in files_named("LICENSE", packed), f"{packed.name} has no LICENSE of ours")
    bare.mkdir()
    call(["npm", "install", *quiet, "--omit=peer", packed], bare)
    (bare / "loads.mjs").write_text(LOADED)
    print(call(["node", "loads.mjs"], bare))


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="walld-install-") as name:
        folder = Path(name).resolve()
        for ending, packages in build(folder).items():
            install(folder / f"venv{ending}", packages)
        if shutil.which("npm"):
            node(folder / "node")
        else:
            print("test-install: the npm package is left out: there is no npm", file=sys.stderr)
            return int(bool(os.environ.get("CI")))
    print("test-install: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

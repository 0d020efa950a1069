"""`steps.toml`, the Makefile, `.ci/packages`: nothing is lost, or left out in silence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import fast
import pytest
from lanes import minutes_max_of, steps_of

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
STEPS = steps_of(ROOT / ".ci/steps.toml")
MINUTES_MAX = 45


def test_all_of_it_has_a_limit() -> None:
    """Shares are of wall time beside the other lane; what must stay small is the whole."""
    assert minutes_max_of(ROOT / ".ci/steps.toml") <= MINUTES_MAX


def test_no_suite_is_lost() -> None:
    assert [step.name for step in STEPS] == [
        "setup", "check", "docs", "test", "test-crash", "kernel", "test-upgrade", "test-install",
        "test-adapters", "simulation", "zoo", "fuzz", "test-node",
    ]  # fmt: skip


def test_every_target_that_a_step_makes_is_in_the_makefile() -> None:
    text = "".join((ROOT / ".ci" / name).read_text() for name in ("steps.toml", "rooms.toml"))
    targets = set(re.findall(r"make ([a-z][a-z-]*)", text))
    assert len(targets) > 12
    for target in targets:
        assert re.search(rf"^{target}:", MAKEFILE, re.M), target


def test_what_make_test_leaves_out_has_a_target() -> None:
    own = re.search(r"^OWN_TARGETS := (.*)$", MAKEFILE, re.M)
    assert own is not None
    assert set(own[1].split()) == fast.OWN_TARGETS
    for name in fast.OWN_TARGETS - {"adapters"}:  # these are run in venvs of their own
        assert re.search(rf"\$\(RUN_TESTS\).* tests/{name}\b", MAKEFILE), name


def test_the_three_licences_are_one() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    for package in ("clients/python", "clients/node"):
        assert (ROOT / package / "LICENSE").read_text() == text


# --- what is left out -----------------------------------------------------------------------------


@pytest.mark.parametrize("ci", [None, "true"])
def test_node_that_is_not_to_be_had_is_said_and_red_where_ci_is_set(
    tmp_path: Path, ci: str | None
) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not in PATH")
    nothing, venv = tmp_path / "nothing", tmp_path / "venv"
    nothing.mkdir()
    venv.mkdir()
    (venv / "made").touch()
    done = subprocess.run(
        [make, "test-node", f"VENV={venv}", "PIP=false"],
        cwd=ROOT,
        env=os.environ | {"PATH": str(nothing)} | ({"CI": ci} if ci else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "test-node left out: no Node 20 or newer with npm is to be had" in done.stderr
    assert (done.returncode == 0) == (ci is None), done.stderr


@pytest.mark.parametrize("ci", [None, "true"])
def test_a_package_that_is_not_to_be_had_is_named_and_red_where_ci_is_set(
    tmp_path: Path, ci: str | None
) -> None:
    for name in ("bash", "id"):  # and no apt-get
        (tmp_path / name).symlink_to(shutil.which(name) or pytest.fail(f"there is no {name}"))
    done = subprocess.run(
        [tmp_path / "bash", ROOT / ".ci/packages", "bash", "no-such-package"],
        env={"PATH": str(tmp_path)} | ({"CI": ci} if ci else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    why = "there is no apt-get" if os.geteuid() == 0 else "only root installs"
    told = f"missing: no-such-package ({why}; Debian: apt-get install no-such-package)"
    assert told in done.stderr
    assert (done.returncode == 0) == (ci is None)


def test_packages_that_are_there_are_not_asked_for(tmp_path: Path) -> None:
    for name in ("bash", "setpriv", "unshare"):
        (tmp_path / name).symlink_to("/bin/true" if name != "bash" else shutil.which("bash") or "")
    done = subprocess.run(
        [tmp_path / "bash", ROOT / ".ci/packages", "util-linux"],
        env={"PATH": str(tmp_path), "CI": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")

"""A planted bug that does not fit the code any more plants nothing."""

from __future__ import annotations

import pytest

from nfs.image import ROOT
from nfs.spoiled import SPOILED


@pytest.mark.parametrize("name", SPOILED)
def test_each_bug_fits_the_code_once(name: str) -> None:
    bug = SPOILED[name]
    text = (ROOT / bug.path).read_text()
    assert text.count(bug.old) == 1
    assert bug.new not in text

"""The corpus again, and a moment of new inputs for each target.

`python -m fuzz TARGET` looks for longer; what it finds joins the corpus once it is mended.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from . import corpus
from .__main__ import TARGETS, main, target
from .corpus import INPUT_BYTES_MAX
from .mutate import mutated

EXAMPLES = {"frames": 500, "segments": 500, "client": 1500, "directory": 25, "sessions": 500}
REPLAYED_MAX = {"directory": 40}
"""Of a target that writes files; all of the others."""

SEEDS = {name: [data for _, data in corpus.load(name)] for name in TARGETS}


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus(name: str) -> None:
    assert len(SEEDS[name]) >= 10
    run = target(name)
    for at, data in enumerate(SEEDS[name]):
        assert len(data) <= INPUT_BYTES_MAX
        if at < REPLAYED_MAX.get(name, 1 << 30):
            run(data)


@pytest.mark.parametrize("name", TARGETS)
def test_new_inputs(name: str) -> None:
    """Mutations of the corpus, and bytes out of the blue."""
    run, seeds = target(name), SEEDS[name]
    inputs = st.randoms(use_true_random=False).map(
        lambda random: mutated(seeds, Random(random.getrandbits(64)))
    ) | st.binary(max_size=200)

    @settings(max_examples=EXAMPLES[name], database=None)
    @given(data=inputs)
    def tried(data: bytes) -> None:
        run(data)

    tried()


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x01", b"\x02", b"\x03", bytes(64)])
def test_hardly_anything_is_an_input_too(data: bytes) -> None:
    for name in TARGETS:
        target(name)(data)


def test_the_runner(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["client", "--plain", "--runs", "100", "--seed", "3"]) == 0
    assert "client: 100 inputs" in capsys.readouterr().out


def test_the_runner_keeps_what_fails(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A target with a bug: the input is written where it was run, and named."""
    from . import client

    def bad(data: bytes) -> None:
        assert len(data) < 100

    monkeypatch.chdir(tmp_path)  # type: ignore[arg-type]
    monkeypatch.setattr(client, "one", bad)
    with pytest.raises(AssertionError):
        main(["client", "--plain", "--runs", "1000"])
    path = capsys.readouterr().err.split()[1]
    with pytest.raises(AssertionError):
        main(["client", path])

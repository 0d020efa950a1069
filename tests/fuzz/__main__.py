"""`python -m fuzz TARGET`: run one target; say how many inputs a second, and keep what fails.

    python -m fuzz frames                   a minute of it
    python -m fuzz segments --runs 100000   so many inputs
    python -m fuzz client --plain --seed 7  without atheris, and the same again
    python -m fuzz directory crash-...      one file
    python -m fuzz --make-seeds             write the corpus's first inputs anew

With atheris inputs are chosen by the branches they reach; without it they are mutations of the
corpus. Exit 1 where an input fails; it is written to `fuzz-<target>-<hash>` and said.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from . import corpus
from .mutate import mutated

TARGETS = ("frames", "segments", "client", "directory", "sessions")
SECONDS_DEFAULT = 60.0
REPORT_SECONDS = 10.0


def target(name: str) -> Callable[[bytes], None]:
    """What takes one input, and raises where it finds something."""
    run: Callable[[bytes], None] = importlib.import_module(f"fuzz.{name}").one
    return run


def _resident_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _failed(name: str, data: bytes) -> None:
    path = Path(f"fuzz-{name}-{hashlib.sha256(data).hexdigest()[:16]}")
    path.write_bytes(data)
    print(f"failed: {path} ({len(data)} bytes): {data[:64].hex()}", file=sys.stderr)


def plain(name: str, runs: int | None, seconds: float, seed: int) -> int:
    """The corpus, then mutations of it. Inputs run."""
    run, random = target(name), Random(seed)
    seeds = [data for _, data in corpus.load(name)]
    begun = told = time.monotonic()
    count, before = 0, _resident_mib()
    while runs is None or count < runs:
        data = seeds[count] if count < len(seeds) else mutated(seeds, random)
        try:
            run(data)
        except BaseException:
            _failed(name, data)
            raise
        count += 1
        if count % 256 == 0:
            now = time.monotonic()
            if runs is None and now - begun > seconds:
                break
            if now - told > REPORT_SECONDS:
                told = now
                rate = count / (now - begun)
                print(f"{name}: {count:,} inputs, {rate:,.0f}/s, {_resident_mib()} MiB", flush=True)
    took = time.monotonic() - begun
    print(f"{name}: {count:,} inputs in {took:.1f} s, {count / took:,.0f}/s, "
          f"{_resident_mib()} MiB at most ({before} before)")  # fmt: skip
    return count


def guided(name: str, runs: int | None, seconds: float, seed: int) -> None:
    """By atheris, which ends the process itself."""
    import atheris

    with atheris.instrument_imports(include=["walld", "walld_client"]):
        run = target(name)
    folder = Path(f".fuzz-{name}")
    folder.mkdir(exist_ok=True)
    options = [
        sys.argv[0],
        f"-seed={seed}",
        f"-max_len={corpus.INPUT_BYTES_MAX}",
        "-rss_limit_mb=2048",
        "-timeout=10",
    ]
    # So many runs are the same again; looking for what another process found goes by the clock.
    many = [f"-runs={runs}", "-reload=0"]
    options += many if runs is not None else [f"-max_total_time={int(seconds)}"]
    # What is new goes to the first folder; what is kept is only read.
    atheris.Setup([*options, "-print_final_stats=1", str(folder), str(corpus.CORPUS / name)], run)
    atheris.Fuzz()


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="fuzz")
    parser.add_argument("target", nargs="?", choices=TARGETS)
    parser.add_argument("files", nargs="*", type=Path, help="run these and nothing else")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=float, default=SECONDS_DEFAULT)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="without atheris")
    parser.add_argument("--make-seeds", action="store_true")
    options = parser.parse_args(arguments)
    if options.make_seeds:
        print(f"{importlib.import_module('fuzz.seeds').make_seeds()} seeds")
        return 0
    if options.target is None:
        parser.error("which target?")
    if options.files:
        for path in options.files:
            target(options.target)(path.read_bytes())
        return 0
    if not options.plain and importlib.util.find_spec("atheris"):
        guided(options.target, options.runs, options.seconds, options.seed)
    try:
        plain(options.target, options.runs, options.seconds, options.seed)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())

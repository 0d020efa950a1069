"""`python -m simulation`: run seeds on all cores; say which failed, and how to see it again.

    python -m simulation --seeds 0..20000      the swarm
    python -m simulation --sessions 0..300     the same seeds, all of them with sessions
    python -m simulation --seed 1324           one, with its plan; s1324: with sessions;
                                               1324x4: with four times as many crash states
    python -m simulation --seeds 0..300 --looks 4   the same, each as 0x4
    python -m simulation --sweep               a crash at every disk verb of a short run
    python -m simulation --pairs 10            a second one in the next life, at every pair of verbs
                                               of a shorter run (here: at each tenth pair;
                                               10:3: at the third, the 13th ...)

`make sim SEED=1324` is the second. Exit 1 where a seed failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from walld.disk.medium import PROFILES

from . import world
from .plan import Plan

_CHUNK = 20


def sweep_plans() -> Iterator[Plan]:
    """A crash at every verb, for each profile, by kill and by power cut."""
    for seed, profile in enumerate(PROFILES):
        short = Plan.short(seed, profile)
        verbs = world.run(short).disk_ops
        for at in range(1, verbs + 1):
            for power in (False, True):
                yield replace(short, crash_at=at, power=power)


def pair_plans(every: int, first_at: int) -> Iterator[Plan]:
    """A crash at every pair of verbs, the second in the start after the first, or later."""
    count = 0
    for seed, profile in enumerate(PROFILES):
        tiny = Plan.tiny(seed, profile)
        for at in range(1, world.run(tiny).disk_ops + 1):
            for power in (False, True):
                first = replace(tiny, crash_at=at, power=power)
                for again in range(1, world.run(first).disk_ops - at + 1):
                    count += 1
                    if count % every == first_at % every:
                        yield replace(first, crash_again=again)


def attempt(plans: list[Plan]) -> tuple[list[tuple[Plan, str]], int]:
    """Run them. What failed, with its traceback; how many crash states the others had."""
    failed, states = [], 0
    for plan in plans:
        try:
            states += world.run(plan).crash_states
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failed.append((plan, traceback.format_exc(limit=-4)))
    return failed, states


def command(plan: Plan) -> str:
    """What shows this run again."""
    if plan.crash_at:
        kind = "power" if plan.power else "kill"
        again = f"+{plan.crash_again}" if plan.crash_again else ""
        return f"make sim SEED={plan.profile}:{plan.crash_at}{again}:{kind}"
    is_plain = replace(plan, looks=1) == Plan.of(plan.seed)
    name = f"{plan.seed}" if is_plain else f"s{plan.seed}"
    return f"make sim SEED={name}" + (f"x{plan.looks}" if plan.looks > 1 else "")


def parse(seed: str) -> Plan:
    """A seed, `s` and one with sessions, of both with `x4` behind it: with more crash states;
    `profile:verb:kill|power` of the sweep, or `profile:verb+verb:...` of the pairs.
    """
    if ":" not in seed:
        name, _, looks = seed.partition("x")
        plan = Plan.of_sessions(int(name[1:])) if name.startswith("s") else Plan.of(int(name))
        return replace(plan, looks=int(looks or 1))
    profile, at, kind = seed.split(":")
    number, power = list(PROFILES).index(profile), kind == "power"
    first, plus, second = at.partition("+")
    if plus:
        tiny = Plan.tiny(number, profile)
        return replace(tiny, crash_at=int(first), crash_again=int(second), power=power)
    return replace(Plan.short(number, profile), crash_at=int(at), power=power)


def _many(plans: list[Plan], jobs: int) -> int:
    begun = time.monotonic()
    done = failures = states = 0
    chunks = [plans[at : at + _CHUNK] for at in range(0, len(plans), _CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        for (failed, seen), chunk in zip(pool.map(attempt, chunks), chunks, strict=True):
            done += len(chunk)
            states += seen
            failures += len(failed)
            for plan, why in failed:
                print(f"\n{why}\n{plan}\nagain: {command(plan)}", file=sys.stderr)
            if sys.stderr.isatty() or done == len(plans):
                rate = done / (time.monotonic() - begun)
                line = f"{done} of {len(plans)} runs, {states} crash states, {failures} failed, "
                line += f"{rate:.0f}/s"
                print(f"\r{line}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return 1 if failures else 0


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="simulation")
    parser.add_argument("--seeds", metavar="FIRST..LAST")
    parser.add_argument("--sessions", metavar="FIRST..LAST")
    parser.add_argument("--seed", metavar="N")
    parser.add_argument("--looks", type=int, default=1, metavar="TIMES")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--pairs", metavar="EVERY[:FROM]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if options.seed is not None:
        plan = parse(options.seed)
        print(plan)
        print(world.run(plan))
        return 0
    plans: list[Plan] = []
    for seeds, plan_of in ((options.seeds, Plan.of), (options.sessions, Plan.of_sessions)):
        if seeds is not None:
            first, _, last = seeds.partition("..")
            found = map(plan_of, range(int(first), int(last)))
            plans += (replace(plan, looks=options.looks) for plan in found)
    if options.sweep:
        plans += sweep_plans()
    if options.pairs:
        every, _, first_at = options.pairs.partition(":")
        plans += pair_plans(int(every), int(first_at or 0))
    return _many(plans, options.jobs)


if __name__ == "__main__":
    sys.exit(main())

/**
 * One scenario of all calls of a session, played by the Python client and by this one, whole and killed between any
 * two steps: the ledgers are the same, to the order of the fields in a payload.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";

import type { SessionEvent } from "walld-client";

import { Daemon, PACKAGE, Program, until } from "../support/daemon.js";

const PYTHON = process.env["WALLD_COMMAND"]?.replace(/walld$/, "python") ?? join(PACKAGE, "../../.venv/bin/python");
const text = readFileSync(join(PACKAGE, "../vectors/scenario.json"), "utf8");
const { steps } = JSON.parse(text) as { steps: [string, unknown[], object][] };
const PLAYERS = {
  node: (...args: string[]) => new Program("test/support/play.js", args),
  python: (...args: string[]) => new Program("../../vectors/play.py", args, {}, [PYTHON]),
};
const OF_THE_MOMENT = [
  ...["at", "owner", "chain", "crc", "_wal_started_at", "_wal_last_event_at"],
  ...["started_at_ms", "at_ms", "ended_at_ms"],
];
type Player = keyof typeof PLAYERS;

const daemon = await Daemon.started({ after });
const client = daemon.client();

/** Steps `from` to `until`; it is killed where these are not the last. What each came to. */
async function played(player: Player, sessionId: string, from: number, until_: number): Promise<string[]> {
  const program = PLAYERS[player](daemon.socket, sessionId, String(from));
  for (let at = from; at < until_; at += 1) {
    program.process.stdin!.write("go\n");
    await until(() => {
      if (program.process.exitCode !== null) throw new Error(`step ${at}: ${program.stderr}`);
      return program.lines.length > at - from;
    }, `step ${at} of ${player}`);
  }
  if (until_ === steps.length) program.process.stdin!.end();
  else program.process.kill("SIGKILL");
  await program.ended();
  return program.lines;
}

/** The log without what is of the moment: times, processes, ids that were drawn. parent: whose ids a child names. */
async function ledgerOf(sessionId: string, parent?: string): Promise<string[]> {
  const events = await client.session(sessionId).events();
  const above = parent === undefined ? [] : await client.session(parent).events();
  const names = new Map([...events, ...above].map((one, at) => [one.id, `#${at}`]));
  const told = (one: SessionEvent): string =>
    JSON.stringify(one, (name, value: unknown) => {
      if (OF_THE_MOMENT.includes(name)) return undefined;
      return typeof value === "string" ? (names.get(value) ?? value) : value;
    }).replaceAll(/(whole|killed-[0-9]+)-(node|python)/g, "session");
  return events.map(told);
}

/** Nobody is at work on it any more: the daemon has seen that its process is gone. */
async function isLeft(sessionId: string): Promise<boolean> {
  const gate = await client.session(sessionId).resumeCheck();
  return gate === null || (gate.owner ?? null) === null;
}

test("both clients write the same ledger", async () => {
  const ways = await Promise.all(
    (["node", "python"] as const).map(async (player) => {
      const lines = await played(player, `whole-${player}`, 0, steps.length);
      const name = `whole-${player}`;
      const [ledger, fork] = [await ledgerOf(name), await ledgerOf(`${name}-fork`)];
      return { lines, ledger, fork, child: await ledgerOf(`${name}-child`, name) };
    }),
  );
  assert.deepEqual(ways[0]!.lines, ways[1]!.lines);
  assert.deepEqual(ways[0]!.lines.filter((one) => one !== "ok"), [], "none of it is refused");
  assert.ok(ways[0]!.ledger.length > steps.length - 10);
  assert.deepEqual(ways[0]!.ledger, ways[1]!.ledger);
  assert.deepEqual(ways[0]!.fork, ways[1]!.fork);
  assert.ok(ways[0]!.child.length > 3);
  assert.deepEqual(ways[0]!.child, ways[1]!.child);
});

/** Killed behind each step of `cuts`; the other client goes on each time. */
async function relayed(first: Player, sessionId: string, cuts: readonly number[]): Promise<string[]> {
  const said: string[] = [];
  let player = first;
  for (const [at, end] of [...cuts, steps.length].entries()) {
    said.push(...(await played(player, sessionId, cuts[at - 1] ?? 0, end)));
    for (const name of [sessionId, `${sessionId}-child`]) {
      await until(() => isLeft(name), `step ${end}: ${name} without an owner`);
    }
    player = player === "node" ? "python" : "node";
  }
  return [...said, ...(await ledgerOf(sessionId)), ...(await ledgerOf(`${sessionId}-child`, sessionId))];
}

const every = steps.map((_, at) => at).slice(1);
const places = [
  every.filter((at) => at % 2 === 0),
  every.filter((at) => at % 2 === 1),
  ...every.filter((at) => at % 7 === 3).map((at) => [at]),
];
for (const [number, cuts] of places.entries()) {
  test(`so they do where each is killed and the other one goes on, behind step ${cuts[0]}${cuts.length > 1 ? " and every second one" : ""}`, async () => {
    const ways = (["node", "python"] as const).map((first) => relayed(first, `killed-${number}-${first}`, cuts));
    const [ours, theirs] = await Promise.all(ways);
    assert.deepEqual(ours, theirs);
  });
}

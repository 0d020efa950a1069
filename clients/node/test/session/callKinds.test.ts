/**
 * What the calls of sessions take is what the Python client's signatures say (`clients/vectors/calls.json`), in this
 * client's words; and what is of another kind is named before anything is sent.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { toolsHash } from "walld-client";

import { checkArgument, type KindName } from "#dist/encoding/argumentChecks.js";
import { REPLY_CALLS } from "#dist/reply/modelChecks.js";
import { CLIENT_CALLS, SESSION_CALLS, TURN_CALLS, type Call } from "#dist/session/calls.js";

import { Daemon, PACKAGE } from "../support/daemon.js";

type Words = string | string[];
const { kinds, calls, hashes } = JSON.parse(readFileSync(join(PACKAGE, "../vectors/calls.json"), "utf8")) as {
  kinds: { kind: string; takes: unknown[]; refuses: unknown[] }[];
  calls: { call: string; arguments: Record<string, Words>; only_with?: Record<string, [string, string[]]> }[];
  hashes: { tools: unknown; hash: string }[];
};
const TABLES: Record<string, Readonly<Record<string, Call>>> = {
  client: CLIENT_CALLS,
  session: SESSION_CALLS,
  turn: TURN_CALLS,
  reply: REPLY_CALLS,
};
/** Kinds that have another name here. */
const KINDS: Record<string, string> = {
  seconds: "milliseconds",
  time: "date",
  path: "text",
  path_or_object: "pathOrObject",
  either: "functionOrObject",
};
/** Arguments that have another name here, or another kind. */
const NAMES: Record<string, string> = { timeout: "timeoutMs", arguments: "args" };
const OTHERS: Record<string, Record<string, Words | undefined>> = {
  append: { wait: undefined, timeoutMs: "milliseconds" },
  appendMany: { timeoutMs: "milliseconds" },
  message: { wait: undefined, timeoutMs: "milliseconds", meta: "object" },
  edit: { target: "entryOrObjects" },
  project: { args: "object" },
  submit: { meta: "object" },
  resume: { accept: ["check"] },
  reply: { meta: "object" },
};
/** Whose fields of the application's own are keywords there. */
const OWN = Object.keys(TURN_CALLS).filter((name) => name !== "reply");

const camel = (name: string): string => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

function inWords(verb: string, given: Record<string, Words>): Record<string, Words | undefined> {
  const found: Record<string, Words | undefined> = {};
  for (const [name, kind] of Object.entries(given)) {
    found[NAMES[name] ?? camel(name)] = typeof kind === "string" ? (KINDS[kind] ?? camel(kind)) : kind;
  }
  return { ...found, ...OTHERS[verb], ...(OWN.includes(verb) ? { fields: "object" } : {}) };
}

test("each call of the Python client is here, with arguments of the same kinds", () => {
  const seen: string[] = [];
  for (const { call, arguments: given, only_with: rules = {} } of calls) {
    const [holder, name] = call.includes(".") ? (call.split(".") as [string, string]) : ["client", call];
    const verb = camel(name);
    const { given: places = {}, options = {}, onlyWith = {} } = TABLES[holder]![verb]!;
    const theirRules = Object.entries(rules).map(([one, [other, words]]) => [camel(one), [camel(other), words]]);
    assert.deepEqual(onlyWith, Object.fromEntries(theirRules), call);
    seen.push(`${holder}.${verb}`);
    const theirs = Object.entries(inWords(verb, given)).filter(([, kind]) => kind !== undefined);
    assert.deepEqual({ ...places, ...options }, Object.fromEntries(theirs), call);
  }
  const ours = Object.entries(TABLES).flatMap(([holder, table]) => Object.keys(table).map((verb) => `${holder}.${verb}`));
  assert.deepEqual(seen.sort(), ours.sort());
});

test("a kind takes and refuses what the description says", () => {
  for (const { kind, takes, refuses } of kinds) {
    const name = (KINDS[kind] ?? camel(kind)) as KindName;
    for (const value of takes) checkArgument(value, "it", name);
    for (const value of refuses) {
      const isNamed = (error: Error) => /^it (must|is|holds)/.test(error.message) && !(error instanceof SyntaxError);
      assert.throws(() => checkArgument(value, "it", name), isNamed, `${kind}: ${JSON.stringify(value)?.slice(0, 60)}`);
    }
  }
});

test("every argument of every call is looked at before anything is sent", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  const session = client.session("given");
  const turn = await session.submit("q");
  const before = await session.events();
  const reply = client.reply("given");
  const holders = { client, session, turn, reply } as unknown as Record<string, Record<string, (...given: unknown[]) => Promise<unknown>>>;
  /** Something that each kind takes, so that the one at hand is what is wrong. */
  const right: Record<string, unknown> = { id: "x", entry: "x", place: "x", text: "x", any: "x", object: {}, objects: [], count: 1, seq: 0, source: Buffer.from("x"), beginning: "x", entryOrObjects: "x" };
  const rightOf = (kind: unknown) => (Array.isArray(kind) ? kind[0] : right[String(kind).replace("?", "")]);
  let looked = 0;
  for (const [holder, table] of Object.entries(TABLES)) {
    for (const [verb, { given = {}, options = {} }] of Object.entries(table)) {
      if (verb === "startup") continue; // no method
      const call = async (places: unknown[], named?: object) =>
        holders[holder]![verb]!(...places, ...(named === undefined ? [] : [named]));
      const places = Object.entries(given);
      const wrong = Symbol("wrong");
      for (const [at, [name, kind]] of places.entries()) {
        if (kind === "any") continue;
        const taken = places.map(([, one], place) => (place === at ? wrong : rightOf(one)));
        await assert.rejects(call(taken), (error: Error) => isAbout(error, name), `${verb} ${name}`);
        looked += 1;
      }
      const taken = places.map(([, one]) => rightOf(one));
      for (const [name, kind] of Object.entries(options)) {
        if (kind === "any") continue;
        await assert.rejects(call(taken, { [name]: wrong }), (error: Error) => isAbout(error, name), `${verb} ${name}`);
        looked += 1;
      }
      if (Object.keys(options).length > 0) await assert.rejects(call(taken, { misspelt: 1 }), /there is no option misspelt/, verb);
    }
  }
  assert.ok(looked > 120, `${looked}`);
  const ofWords = { result: "x", scope: {}, expiresAt: new Date(0) };
  for (const [name, value] of Object.entries(ofWords)) {
    const told = new RegExp(`^${name} is of word (ran|granted), got it with 'did_not_run'$`);
    await assert.rejects(session.settle("c", "did_not_run", { [name]: value }), { message: told });
  }
  assert.equal(await session.settle("c", "did_not_run", { result: null }).catch((error) => error.code), "unknown_call");
  assert.deepEqual(await session.events(), before);
  assert.deepEqual(await client.sessions(), await client.sessions("given"));
});

test("tools have the hash that the Python client gives them", () => {
  for (const { tools, hash } of hashes) assert.equal(toolsHash(tools), hash, JSON.stringify(tools));
  assert.equal(toolsHash([{ b: undefined, a: new Date(0) }]), toolsHash([{ a: "1970-01-01T00:00:00.000Z" }]));
  assert.notEqual(toolsHash([1, 2]), toolsHash([2, 1]));
  assert.throws(() => toolsHash([{ least: NaN }]), /least must be a finite number to be JSON, got NaN/);
  for (const tools of [undefined, [1n]]) assert.throws(() => toolsHash(tools), TypeError);
});

function isAbout(error: Error, name: string): boolean {
  assert.match(error.message, new RegExp(`^${name} (must|is|holds)`));
  return error instanceof TypeError || error instanceof RangeError;
}

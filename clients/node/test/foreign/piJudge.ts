/**
 * pi's own code judges what walld makes of pi's session files: at every entry of every tree, leaf or not, what pi would
 * go on with there and what a session has there that the file was imported into.
 *
 * Owns: the judgement of one tree. Refuses: which trees there are (`piTrees.ts`).
 *
 * Compared, in order: of each message its role, its text, pictures and thoughts, its calls (id, name, arguments, and
 * where they stand among the text), of a result the call, its tool and whether it failed, how an answer ended, whether
 * it is a summary and of what; the model with its provider, and the thinking level. At each leaf also the session's own
 * fold of the model and the level, once it has gone there; of the file the leaf and the name. And what a provider is
 * sent in OpenAI's format: the same texts, calls and results.
 *
 * What differs, and why:
 * - a command that the user ran is told in other words; compared are the command, what it printed, and its exit code;
 * - a message that an edit leaves out is an empty one in "plain", since others may name it; no provider is sent it;
 * - an answer that failed has `_attempt`; pi, too, leaves it out of what it sends, but does so with the request;
 * - a summary has one sentence of walld's own before it where pi has two of its own around it;
 * - a call whose result stands behind the entry, or on another branch, has it: it ran. Of one without any walld says in
 *   more words than pi that there is none. A result whose call a compaction hides is not sent: a provider refuses it;
 * - a label is no leaf here: at one walld has what is above it, and a label that hangs on nothing is nowhere;
 * - system messages: pi folds the newest into the request, and those before a compaction into that. Here they are
 *   messages where they stood. No tree has one.
 */

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { copyFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

import type { SessionEvent } from "walld-client";

import { type Json, linesOf, type SessionManager, written } from "./piTrees.js";
import { PACKAGE, type Daemon } from "../support/daemon.js";

interface Context {
  messages: Json[];
  thinkingLevel: string;
  model: { provider?: string; modelId?: string } | null;
}

interface Pi {
  SessionManager: { create(cwd: string, directory: string): SessionManager; open(file: string): SessionManager };
  migrateSessionEntries(entries: Json[]): void;
  buildSessionContext(entries: Json[], leaf: string): Context;
  convertToLlm(messages: Json[]): Json[];
}

/** Its own modules: what the package exports is the whole program, with its screen. */
const CORE = join(PACKAGE, "node_modules/@earendil-works/pi-coding-agent/dist/core");
const module = (name: string) => import(pathToFileURL(join(CORE, name)).href);
const pi = { ...(await module("session-manager.js")), ...(await module("messages.js")) } as Pi;

const OF_ALL_BEFORE = "What was said in this conversation before is replaced by this summary of it:";
const OF_A_BRANCH = "The conversation went on elsewhere and came back here; this is a summary of what was left:";
/** How the result begins of a call that nobody answered. */
const UNKNOWN = "No result was recorded: ";
const FAILED = ["error", "aborted"];
/** The pieces of content, each in one shape. */
function pieces(content: unknown): unknown[] {
  if (typeof content === "string") return content === "" ? [] : [content];
  return ((content ?? []) as Json[]).map((one) => {
    if (one["type"] === "text") return one["text"];
    if (one["type"] === "image") return { picture: one["mimeType"], data: one["data"] };
    if (one["type"] === "toolCall") return { call: one["id"], name: one["name"], arguments: one["arguments"] };
    return { thought: one["thinking"], signature: one["thinkingSignature"], isRedacted: one["redacted"] === true };
  });
}

const command = (of: Json) => [{ command: of["command"], output: of["output"], exitCode: of["exitCode"] }];

/** What pi goes on with, as this test compares it. */
function judged(message: Json): Json[] {
  const role = message["role"];
  const said = (content: unknown, more: Json = {}) => [{ role: "user", said: content, ...more }];
  if (role === "branchSummary") return said([message["summary"]], { summary: "branch" });
  if (role === "compactionSummary") return said([message["summary"]], { summary: "compaction" });
  if (role === "bashExecution") return message["excludeFromContext"] ? [] : said(command(message));
  if (role === "custom") return said(pieces(message["content"]));
  const told: Json = { role, said: pieces(message["content"]) };
  if (role === "assistant") return [{ ...told, ended: message["stopReason"], isAttempt: isFailed(message) }];
  if (role !== "toolResult") return [told];
  const named = { call: message["toolCallId"], name: message["toolName"], isError: message["isError"] };
  return [{ ...told, role: "tool", ...named }];
}

const isFailed = (message: Json) => FAILED.includes(message["stopReason"] as string);

/** What walld has, in the same shape. */
function had(message: Json): Json[] {
  const { role, content } = message;
  const foreign = (message["_foreign"] ?? {}) as Json;
  const isLeftOut = content === "" && "context_edit" in foreign;
  if (isLeftOut) return [];
  const told: Json = { role, said: foreign["role"] === "bashExecution" ? command(foreign) : pieces(content) };
  if (message["_branch_summary"]) told["summary"] = "branch";
  if (message["_compaction"]) told["summary"] = "compaction";
  if (role === "tool") {
    return [{ ...told, call: message["tool_call_id"], name: message["name"], isError: message["is_error"] ?? false }];
  }
  if (role !== "assistant") return [told];
  const listed = ((message["tool_calls"] ?? []) as Json[]).map((one) => one["id"]);
  const shown = (told["said"] as Json[]).flatMap((one) => one?.["call"] ?? []);
  assert.deepEqual(listed, shown, "the calls of an answer are those of its blocks");
  return [{ ...told, ended: message["finish_reason"], isAttempt: "_attempt" in message }];
}

/** [role, text or call or result] of each thing that a provider is sent, texts of one side in a row as one. */
type Sent = [string, string][];

function joined(sent: Sent): Sent {
  const found: Sent = [];
  for (const [role, said] of sent) {
    const last = found.at(-1);
    if (last?.[0] === role && (role === "user" || role === "assistant")) last[1] += `\n\n${said}`;
    else found.push([role, said]);
  }
  return found;
}

const shown = (content: unknown): string[] =>
  pieces(content).flatMap((one) => (typeof one === "string" ? one : (one as Json)["picture"] ? "[picture]" : []));

/** What pi's own words for a provider come to, by the rules above. */
function sentByPi(messages: Json[], everywhere: Json[]): Sent {
  const sent: Sent = [];
  const whole = pi.convertToLlm(messages.filter((one) => !isFailed(one)));
  const given = [...everywhere, ...whole].filter((one) => one["role"] === "toolResult");
  const results = new Map(given.map((one) => [one["toolCallId"], one]));
  for (const message of whole) {
    if (message["role"] === "toolResult") continue; // it stands with its call
    for (const said of shown(message["content"])) sent.push([String(message["role"]), said]);
    for (const one of pieces(message["content"]) as Json[]) {
      if (one?.["call"] === undefined) continue;
      sent.push(["call", `${one["name"] as string} ${JSON.stringify(one["arguments"])}`]);
      const found = results.get(one["call"]);
      const gave = found === undefined ? UNKNOWN : shown(found["content"]).join("\n");
      sent.push(["result", gave.replace("[picture]", "[picture: not shown]")]);
    }
  }
  return joined(sent);
}

/** The same of messages in OpenAI's format. */
function sentByWalld(messages: Json[]): Sent {
  const sent: Sent = [];
  const results = new Map(messages.filter((one) => one["role"] === "tool").map((one) => [one["tool_call_id"], one]));
  for (const { role, content, tool_calls } of messages) {
    if (role === "tool") continue;
    const blocks = typeof content === "string" ? [{ type: "text", text: content }] : ((content ?? []) as Json[]);
    for (const one of blocks) sent.push([String(role), one["type"] === "text" ? String(one["text"]) : "[picture]"]);
    for (const one of (tool_calls ?? []) as { id: string; function: Json }[]) {
      sent.push(["call", `${one.function["name"] as string} ${JSON.stringify(JSON.parse(String(one.function["arguments"])))}`]);
      const gave = String(results.get(one.id)!["content"]);
      sent.push(["result", gave.startsWith(UNKNOWN) ? UNKNOWN : gave]);
    }
  }
  return joined(sent);
}

/** pi's text of a message in walld's words: the sentences around summaries, and commands of the user. */
function inWords(messages: Json[]): Json[] {
  return messages.map((one) => {
    const as = (content: string) => ({ role: "user", content });
    if (one["role"] === "branchSummary") return as(`${OF_A_BRANCH}\n\n${one["summary"] as string}`);
    if (one["role"] === "compactionSummary") return as(`${OF_ALL_BEFORE}\n\n${one["summary"] as string}`);
    if (one["role"] !== "bashExecution" || one["excludeFromContext"]) return one;
    const output = one["output"] ? `\n\`\`\`\n${one["output"] as string}\n\`\`\`` : "";
    const ended = one["exitCode"] ? `\n(exit code ${one["exitCode"] as number})` : "";
    const cut = `\n(only a part of the output; all of it: ${one["fullOutputPath"] as string})`;
    const told = `${output}${ended}${one["cancelled"] ? "\n(cancelled)" : ""}${one["truncated"] ? cut : ""}`;
    return as(`Ran \`${one["command"] as string}\`${told}`);
  });
}

/** pi's entries of a file, with the id of each entry in the session. */
function entriesOf(file: string, events: { id: string; type: string }[]): { entries: Json[]; idOf: Map<unknown, string> } {
  const entries = linesOf(file);
  const isTree = entries[0]!["version"] !== undefined;
  pi.migrateSessionEntries(entries);
  const found = entries.filter((one) => one["type"] !== "session");
  const own = events.filter((one) => one.type !== "imported" && one.type !== "pi.session");
  // Version 1 has no ids: pi draws some, walld others.
  return { entries: found, idOf: new Map(found.map((one, at) => [one["id"], isTree ? String(one["id"]) : own[at]!.id])) };
}

interface Told {
  type: string;
  payload: Json;
}

/** The model, its provider and the thinking level that the entries of a path come to. */
function settings(events: Told[]): Json {
  const found: Json = { provider: undefined, model: undefined, level: "off" };
  for (const { type, payload } of events) {
    if (type === "model_change") [found["provider"], found["model"]] = [payload["provider"], payload["model"]];
    if (type === "setting" && payload["key"] === "thinking_level") found["level"] = payload["value"];
    const foreign = (payload["_foreign"] ?? {}) as Json;
    if (type === "message" && payload["role"] === "assistant") {
      [found["provider"], found["model"]] = [foreign["provider"], foreign["model"]];
    }
  }
  return found;
}

/** A label above which there are labels alone: in pi a place before the first entry, here it is no place at all. */
function hangsOnNothing(entry: Json, byId: Map<unknown, Json>): boolean {
  let above: Json | undefined = entry;
  while (above?.["type"] === "label") above = byId.get(above["parentId"]);
  return above === undefined;
}

/** The entries from the root to one of them. */
function pathOf(events: SessionEvent[], id: string): SessionEvent[] {
  const byId = new Map(events.map((one) => [one.id, one]));
  const found: SessionEvent[] = [];
  for (let one = byId.get(id); one !== undefined; one = byId.get(one.parent ?? "")) found.unshift(one);
  return found;
}

async function check(daemon: Daemon, name: string, file: string): Promise<void> {
  const copy = `${file}.of-pi`; // pi writes a file of an older version anew
  await copyFile(file, copy);
  const told = JSON.parse(daemon.walld("session", "import", file, "--session", name, "--json")) as Json;
  assert.equal(told["not_understood"], 0, JSON.stringify(told));
  const session = daemon.client().session(name);
  const events = await session.events();
  const { entries, idOf } = entriesOf(file, events);
  assert.ok(entries.length > 0);
  const byId = new Map(entries.map((one) => [one["id"], one]));
  const parents = new Set(entries.map((one) => one["parentId"]));
  const everywhere = entries.flatMap((one) => (one["message"] === undefined ? [] : [one["message"] as Json]));
  const state = async () => {
    const { model, settings } = (await session.project("state")) as { model: string | null; settings: Json };
    return { model, level: settings["thinking_level"] ?? "off", name: settings["name"] ?? undefined };
  };
  assert.equal((await state()).name, pi.SessionManager.open(copy).getSessionName(), "the name");
  const atLeaf = pi.buildSessionContext(entries, String(entries.at(-1)!["id"])).messages;
  assert.deepEqual((await session.messages())!.flatMap(had), atLeaf.flatMap(judged), "the leaf");
  for (const entry of entries) {
    const id = String(entry["id"]);
    if (hangsOnNothing(entry, byId)) continue;
    const context = pi.buildSessionContext(entries, id);
    const where = `${entry["type"] as string} ${id}, line ${entries.indexOf(entry) + 2}`;
    const branch = { branch: idOf.get(id)! };
    const said = (await session.messages(branch))!;
    assert.deepEqual(said.flatMap(had), context.messages.flatMap(judged), where);
    const sent = (await session.messages({ ...branch, format: "openai" }))!;
    assert.deepEqual(sentByWalld(sent), sentByPi(inWords(context.messages), everywhere), where);
    const chosen = { provider: context.model?.provider, model: context.model?.modelId, level: context.thinkingLevel };
    assert.deepEqual(settings(pathOf(events, branch.branch)), chosen, where);
    if (parents.has(id) || entry["type"] === "label") continue; // a label is no leaf here
    await session.branch(branch.branch);
    const { model, level } = await state();
    assert.deepEqual({ model: model ?? undefined, level }, { model: chosen.model, level: chosen.level }, where);
  }
}

/** A test of each tree: of lines, or of what pi is told to write. */
export function judge(daemon: Daemon, trees: Record<string, readonly Json[] | ((pi: SessionManager) => void)>): void {
  const directory = join(daemon.home, "pi");
  mkdirSync(directory);
  for (const [name, tree] of Object.entries(trees)) {
    test(name, async () => {
      const made = typeof tree === "function" ? pi.SessionManager.create(directory, directory) : null;
      if (typeof tree === "function") tree(made!);
      await check(daemon, name, made?.getSessionFile() ?? written(directory, name, tree as readonly Json[]));
    });
  }
}

/**
 * Session files of pi, each a tree: what its own session manager writes, lines of its versions 1 and 2, and random ones.
 *
 * Owns: which trees there are. Refuses: what pi and walld make of them (`piJudge.ts`). The same seed makes the same
 * tree, but for the ids, which pi draws.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export type Json = Record<string, unknown>;

/** What of pi's session manager is used here; it is pi's own, at run time. */
export interface SessionManager {
  appendMessage(message: Json): string;
  appendThinkingLevelChange(level: string): string;
  appendModelChange(provider: string, model: string): string;
  appendCompaction(summary: string, kept: string | null, tokens: number): string;
  appendCustomEntry(type: string, data?: unknown): string;
  appendCustomMessageEntry(type: string, content: unknown, display: boolean): string;
  appendSessionInfo(name: string): string;
  appendLabelChange(target: string, label: string | undefined): string;
  appendContextEdit(target: string, replacement: { content: unknown } | null): string;
  appendUsage(kind: string, provider: string, model: string, usage: object): Json;
  branch(from: string): void;
  branchWithSummary(from: string | null, summary: string): string;
  resetLeaf(): void;
  createBranchedSession(leaf: string): string | undefined;
  getSessionFile(): string | undefined;
  getSessionName(): string | undefined;
  getLeafId(): string | null;
  getEntries(): Json[];
}

const PICTURE = { type: "image", data: "aGVsbG8=", mimeType: "image/png" };
const USAGE = { input: 1, output: 1, cacheRead: 0, cacheWrite: 0, totalTokens: 2, cost: { total: 0 } };
let clock = Date.parse("2026-11-20T10:00:00Z");
let calls = 0;

const text = (said: string): Json => ({ type: "text", text: said });
const user = (content: unknown): Json => ({ role: "user", content, timestamp: ++clock });
const call = (name = "read", args: Json = { path: "a.ts" }): Json & { id: string } => ({
  type: "toolCall", id: `call-${++calls}`, name, arguments: args,
});

function answer(content: unknown, more: Json = {}): Json {
  const blocks = typeof content === "string" ? [text(content)] : content;
  const by = { api: "anthropic-messages", provider: "anthropic", model: "claude-x" };
  return { role: "assistant", content: blocks, ...by, usage: USAGE, stopReason: "stop", timestamp: ++clock, ...more };
}

function result(of: Json, content: unknown, more: Json = {}): Json {
  const blocks = typeof content === "string" ? [text(content)] : content;
  const named = { toolCallId: of["id"], toolName: of["name"] };
  return { role: "toolResult", ...named, content: blocks, isError: false, timestamp: ++clock, ...more };
}

const ran = (command: string, output: string, more: Json = {}): Json => ({
  role: "bashExecution", command, output, exitCode: 0, cancelled: false, truncated: false, timestamp: ++clock, ...more,
});

/** A question and its answer; the entry of the answer. */
function ask(pi: SessionManager, word: string): string {
  pi.appendMessage(user(`question ${word}`));
  return pi.appendMessage(answer(`answer ${word}`));
}

/** By name, what pi is told to write: how entries hang together. */
export const SHAPES: Record<string, (pi: SessionManager) => void> = {
  "a talk": (pi) => ["one", "two", "three"].forEach((word) => ask(pi, word)),
  "a question alone": (pi) => void pi.appendMessage(user([text("first"), text("second")])),
  "two branches": (pi) => {
    const first = ask(pi, "one");
    ask(pi, "left");
    pi.branch(first);
    ask(pi, "taken");
  },
  "branches of branches": (pi) => {
    const root = ask(pi, "root");
    for (const one of ["a", "b", "c"]) {
      pi.branch(root);
      const below = ask(pi, one);
      ask(pi, `${one}-1`);
      pi.branch(below);
      ask(pi, `${one}-2`);
    }
  },
  "two roots": (pi) => {
    ask(pi, "one");
    pi.resetLeaf();
    ask(pi, "edited");
  },
  "a summary of a branch": (pi) => {
    const first = ask(pi, "one");
    ask(pi, "left");
    pi.branchWithSummary(first, "It was a dead end.");
    ask(pi, "taken");
  },
  "a summary of all, before the first entry": (pi) => {
    ask(pi, "one");
    pi.branchWithSummary(null, "All of it was wrong.");
    ask(pi, "anew");
  },
  "an empty summary of a branch": (pi) => {
    const first = ask(pi, "one");
    ask(pi, "left");
    pi.branchWithSummary(first, "");
    ask(pi, "taken");
  },
  "a compaction": (pi) => {
    ask(pi, "one");
    const kept = pi.appendMessage(user("kept question"));
    pi.appendMessage(answer("kept answer"));
    pi.appendCompaction("What was said.", kept, 1000);
    ask(pi, "after");
  },
  "a compaction that keeps from an answer on": (pi) => {
    const kept = ask(pi, "one");
    ask(pi, "two");
    pi.appendCompaction("What was said.", kept, 1000);
    ask(pi, "after");
  },
  "a compaction that keeps nothing": (pi) => {
    ask(pi, "one");
    pi.appendCompaction("All of it.", null, 1000);
    ask(pi, "after");
  },
  "two compactions": (pi) => {
    ask(pi, "one");
    const kept = ask(pi, "two");
    pi.appendCompaction("First.", kept, 1000);
    const later = ask(pi, "three");
    ask(pi, "four");
    pi.appendCompaction("Second.", later, 1000);
    ask(pi, "after");
  },
  "a compaction that keeps what the one before had left out": (pi) => {
    const early = ask(pi, "one");
    const kept = ask(pi, "two");
    pi.appendCompaction("First.", kept, 1000);
    pi.appendCompaction("Second.", early, 1000);
    ask(pi, "after");
  },
  "a compaction on one of two branches": (pi) => {
    ask(pi, "one");
    const fork = ask(pi, "two");
    pi.appendCompaction("Short.", fork, 1000);
    ask(pi, "short");
    pi.branch(fork);
    ask(pi, "whole");
  },
  "a compaction that keeps from a label on": (pi) => {
    ask(pi, "one");
    const labelled = ask(pi, "two");
    const label = pi.appendLabelChange(labelled, "here");
    ask(pi, "three");
    pi.appendCompaction("Short.", label, 1000);
    ask(pi, "after");
  },
  "a compaction that keeps from a label on another branch on": (pi) => {
    const fork = ask(pi, "one");
    const label = pi.appendLabelChange(fork, "here");
    ask(pi, "left");
    pi.branch(fork);
    ask(pi, "two");
    pi.appendCompaction("Short.", label, 1000);
    ask(pi, "after");
  },
  "labels, and what hangs on them": (pi) => {
    const first = ask(pi, "one");
    const label = pi.appendLabelChange(first, "start");
    pi.appendLabelChange(first, "begin");
    ask(pi, "two");
    pi.appendLabelChange(first, undefined);
    pi.branch(label);
    ask(pi, "from the label");
  },
  "a label at the end": (pi) => void pi.appendLabelChange(ask(pi, "one"), "end"),
  "a branch that became a file of its own": (pi) => {
    ask(pi, "one");
    const labelled = ask(pi, "two");
    const label = pi.appendLabelChange(labelled, "here");
    ask(pi, "three");
    pi.appendCompaction("Short.", label, 1000);
    ask(pi, "after");
    pi.createBranchedSession(pi.getLeafId()!);
  },
};

/** By name, what pi is told to write: what entries hold. */
export const CONTENTS: Record<string, (pi: SessionManager) => void> = {
  "models": (pi) => {
    pi.appendModelChange("openai", "gpt-x");
    const first = ask(pi, "one");
    pi.appendModelChange("google", "gemini-x");
    pi.branch(first);
    pi.appendMessage(user("again"));
    pi.appendMessage(answer("as another", { provider: "openai", api: "openai-responses", model: "gpt-y" }));
    pi.appendModelChange("openai", "gpt-z");
  },
  "thinking levels": (pi) => {
    const first = ask(pi, "one");
    pi.appendThinkingLevelChange("high");
    ask(pi, "two");
    pi.branch(first);
    pi.appendThinkingLevelChange("low");
    pi.appendThinkingLevelChange("off");
    ask(pi, "three");
  },
  "what extensions keep and say": (pi) => {
    ask(pi, "one");
    pi.appendCustomEntry("state", { count: 1, list: [null, "x"] });
    pi.appendCustomMessageEntry("hint", "Mind the gap.", false);
    pi.appendCustomMessageEntry("shown", [text("Look:"), PICTURE], true);
    pi.appendMessage({ role: "custom", customType: "told", content: "as a message", display: true, timestamp: ++clock });
    ask(pi, "two");
  },
  "names": (pi) => {
    const first = ask(pi, "one");
    pi.appendSessionInfo("first name");
    ask(pi, "two");
    pi.appendSessionInfo("later\nname");
    pi.branch(first);
    ask(pi, "three");
  },
  "a name that was taken away": (pi) => {
    const first = ask(pi, "one");
    pi.appendSessionInfo("a name");
    const named = ask(pi, "two");
    pi.branch(first);
    pi.appendSessionInfo(" ");
    pi.branch(named);
    ask(pi, "three");
  },
  "attempts": (pi) => {
    pi.appendMessage(user("do it"));
    pi.appendMessage(answer("half an answer", { stopReason: "error", errorMessage: "529 overloaded" }));
    pi.appendMessage(answer([], { stopReason: "error", errorMessage: "529 overloaded" }));
    pi.appendMessage(answer("whole"));
    pi.appendMessage(user("more"));
    pi.appendMessage(answer([text("I begin"), call()], { stopReason: "aborted", errorMessage: "stopped" }));
    pi.appendMessage(user("go on"));
    pi.appendMessage(answer("done", { stopReason: "length" }));
  },
  "calls and results": (pi) => {
    const [one, two, three] = [call(), call("bash", { command: "ls" }), call("list", {})];
    pi.appendMessage(user("look"));
    pi.appendMessage(answer([text("Both:"), one, two], { stopReason: "toolUse" }));
    pi.appendMessage(result(two, "no such file", { isError: true }));
    pi.appendMessage(result(one, [text("part 1"), text("part 2")]));
    pi.appendMessage(answer([three], { stopReason: "toolUse" }));
    pi.appendMessage(result(three, "a.ts"));
    pi.appendMessage(answer("All there."));
  },
  "a result behind a compaction": (pi) => {
    const one = call();
    ask(pi, "one");
    pi.appendMessage(user("look"));
    pi.appendMessage(answer([one], { stopReason: "toolUse" }));
    const kept = pi.appendMessage(result(one, "read"));
    pi.appendMessage(answer("It says so."));
    pi.appendCompaction("Short.", kept, 1000);
    ask(pi, "after");
  },
  "pictures": (pi) => {
    const one = call();
    pi.appendMessage(user([text("What is it?"), PICTURE]));
    pi.appendMessage(answer([one], { stopReason: "toolUse" }));
    pi.appendMessage(result(one, [text("read"), PICTURE]));
    pi.appendMessage(answer("A greeting."));
  },
  "thoughts": (pi) => {
    const one = call();
    const thought = { type: "thinking", thinking: "hm", thinkingSignature: "c2ln" };
    pi.appendMessage(user("think"));
    pi.appendMessage(answer([thought, text("So:"), one], { stopReason: "toolUse" }));
    pi.appendMessage(result(one, "read"));
    pi.appendMessage(answer([{ type: "thinking", thinking: "", thinkingSignature: "cmVk", redacted: true }, text("Yes.")]));
  },
  "commands of the user": (pi) => {
    pi.appendMessage(ran("ls -la", "a.ts"));
    pi.appendMessage(ran("false", "", { exitCode: 1 }));
    pi.appendMessage(ran("make", "half", { exitCode: undefined, cancelled: true }));
    pi.appendMessage(ran("cat log", "end", { truncated: true, fullOutputPath: "/tmp/log" }));
    pi.appendMessage(ran("secret", "hidden", { excludeFromContext: true }));
    ask(pi, "one");
  },
  "edits of the context": (pi) => {
    const one = call();
    const asked = pi.appendMessage(user("long question"));
    const said = pi.appendMessage(answer([text("long answer"), one], { stopReason: "toolUse" }));
    const gave = pi.appendMessage(result(one, "a whole file"));
    const hint = pi.appendCustomMessageEntry("hint", "old hint", true);
    pi.appendContextEdit(gave, { content: "short" });
    pi.appendContextEdit(hint, { content: "new hint" });
    ask(pi, "two");
    pi.branch(said);
    pi.appendContextEdit(asked, { content: [text("shorter"), PICTURE] });
    pi.appendContextEdit(said, { content: "no call any more" });
    ask(pi, "three");
  },
  "edits that leave something out": (pi) => {
    ask(pi, "one");
    const left = pi.appendMessage(user("left out"));
    const [kept, one] = [pi.appendMessage(answer("kept")), call()];
    const called = pi.appendMessage(answer([one], { stopReason: "toolUse" }));
    const gave = pi.appendMessage(result(one, "read"));
    for (const id of [left, called, gave]) pi.appendContextEdit(id, null);
    pi.appendCompaction("Short.", left, 1000);
    pi.appendContextEdit(kept, { content: "kept, in short" });
    ask(pi, "after");
  },
  "what was used, and messages without content": (pi) => {
    pi.appendMessage(user(null));
    pi.appendMessage(answer(null));
    pi.appendUsage("cache_warm", "anthropic", "claude-x", USAGE);
    ask(pi, "one");
  },
};

const AT = { timestamp: "2025-11-20T23:33:50.805Z" };

/** By name, lines that pi migrates. */
export const LINES: Record<string, Json[]> = {
  "version 1": [
    { type: "session", id: "s1", cwd: "/x" },
    { type: "message", message: user("one") },
    { type: "model_change", provider: "openai", modelId: "gpt-x" },
    { type: "message", message: answer("two") },
    { type: "thinking_level_change", thinkingLevel: "medium" },
    { type: "message", message: user("three") },
    { type: "compaction", summary: "so far", firstKeptEntryIndex: 3, tokensBefore: 9 },
    { type: "message", message: answer("four") },
  ],
  "version 1, compacted twice": [
    { type: "session", id: "s2", cwd: "/x" },
    ...["one", "two", "three"].map((word) => ({ type: "message", message: user(word) })),
    { type: "compaction", summary: "first", firstKeptEntryIndex: 2, tokensBefore: 9 },
    { type: "message", message: answer("four") },
    { type: "compaction", summary: "second", firstKeptEntryIndex: 77, tokensBefore: 9 },
    { type: "message", message: user("five") },
  ],
  "version 2": [
    { type: "session", version: 2, id: "s3", cwd: "/x" },
    { type: "message", id: "a", parentId: null, message: user("one") },
    { type: "message", id: "b", parentId: "a", message: { ...user("hooked"), role: "hookMessage", customType: "todo" } },
    { type: "message", id: "c", parentId: "b", message: answer("two") },
    { type: "label", id: "l", parentId: "c", targetId: "a", label: "start" },
    { type: "message", id: "d", parentId: "l", message: user("three") },
    { type: "message", id: "e", parentId: "b", message: answer("another two") },
  ],
  "a compaction that is a root, and one that names what is nowhere": [
    { type: "session", version: 3, id: "s4", cwd: "/x" },
    { type: "message", id: "a", parentId: null, message: user("one") },
    { type: "compaction", id: "b", parentId: null, summary: "all before", firstKeptEntryId: "a", tokensBefore: 9 },
    { type: "message", id: "c", parentId: "b", message: user("two") },
    { type: "compaction", id: "d", parentId: "c", summary: "once more", firstKeptEntryId: "gone", tokensBefore: 9 },
    { type: "message", id: "e", parentId: "d", message: answer("three") },
  ],
};

/** Numbers from 0 to below 1, the same for the same seed (mulberry32). */
function chanceOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Whatever pi can be told, in any order, from any entry on. */
export function random(seed: number, steps: number): (pi: SessionManager) => void {
  const chance = chanceOf(seed);
  const below = (count: number) => Math.floor(chance() * count);
  return (pi) => {
    const ids = [ask(pi, "first")];
    const any = () => ids[below(ids.length)]!;
    const onPath = () => path(pi)[below(path(pi).length)] ?? any();
    const told: ((word: string) => string | void)[] = [
      (word) => ask(pi, word),
      (word) => ask(pi, word),
      (word) => pi.appendMessage(user(word)),
      (word) => pi.appendMessage(answer(word, { stopReason: chance() < 0.5 ? "error" : "aborted", model: `m${below(3)}` })),
      (word) => {
        const made = [call("read", { path: word }), call("list", {})].slice(below(2));
        pi.appendMessage(answer([text(word), ...made], { stopReason: "toolUse" }));
        for (const one of made) if (chance() < 0.8) pi.appendMessage(result(one, `of ${word}`, { isError: chance() < 0.3 }));
      },
      (word) => pi.appendCompaction(`summary ${word}`, chance() < 0.8 ? onPath() : chance() < 0.5 ? any() : null, 9),
      (word) => pi.branchWithSummary(any(), `learnt ${word}`),
      () => pi.branch(any()),
      () => (chance() < 0.2 ? pi.resetLeaf() : pi.branch(any())),
      (word) => pi.appendLabelChange(any(), chance() < 0.7 ? word : undefined),
      (word) => pi.appendLabelChange(onPath(), word),
      () => pi.appendModelChange("openai", `gpt-${below(4)}`),
      () => pi.appendThinkingLevelChange(["off", "low", "high"][below(3)]!),
      (word) => pi.appendCustomEntry("state", { word }),
      (word) => pi.appendCustomMessageEntry("hint", word, true),
      (word) => pi.appendSessionInfo(chance() < 0.7 ? word : ""),
    ];
    for (let step = 0; step < steps; step++) {
      const made = told[below(told.length)]!(`${seed}.${step}`);
      if (typeof made === "string") ids.push(made);
    }
    pi.appendMessage(user("last"));
  };
}

/** Ids from the root to the leaf. */
function path(pi: SessionManager): string[] {
  const parents = new Map(pi.getEntries().map((one) => [one["id"], one["parentId"]]));
  const found: string[] = [];
  for (let at: unknown = pi.getLeafId(); typeof at === "string"; at = parents.get(at)) found.unshift(at);
  return found;
}

/** The file of that name in a directory. */
export function written(directory: string, name: string, lines: readonly Json[]): string {
  const file = join(directory, `${name.replace(/\W+/gu, "-")}.jsonl`);
  writeFileSync(file, lines.map((one) => `${JSON.stringify({ ...AT, ...one })}\n`).join(""));
  return file;
}

/** The lines of a file. */
export function linesOf(file: string): Json[] {
  return readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line) as Json);
}

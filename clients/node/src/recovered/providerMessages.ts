/**
 * Turns a recovered reply into messages that are safe to send to a provider.
 *
 * Owns: which segments become which message. Refuses: reading the reply (`partialReply.ts`), inventing.
 *
 * - No reasoning, no orphan: a call goes with its result or not at all, and only where its name is known.
 *   Arguments are a JSON object: what is none is the `input` of one, with a `note` where it was cut.
 * - No two equal roles in a row (but one `tool` message a call, as openai has it), no empty message, no key
 *   a provider does not know; text of steps without a call between becomes one message.
 * - Ids and names as both providers take them: 1-40 and 1-64 of A-Z a-z 0-9 _ -, ids unique. A call id that
 *   is none of those is replaced by a hash of it.
 */

import { createHash } from "node:crypto";

import type { Segment } from "./segment.ts";

const BLANK_LINE = "\n\n";
const CUT = "cut: the rest of it was not recorded";

type Message = Record<string, unknown>;

interface Call {
  id: string;
  name: string;
  arguments: object;
  result: string;
  failed: boolean;
}

/** One assistant message of a provider: text, then calls. */
interface Said {
  text: string;
  calls: Call[];
  step: number;
}

/** Chat messages: assistant (with tool_calls), one tool message a result, assistant, ... */
export function openaiMessages(segments: readonly Segment[]): Message[] {
  return saidIn(segments).flatMap(({ text, calls }) => [
    {
      role: "assistant",
      content: text || null,
      ...(calls.length === 0 ? {} : { tool_calls: calls.map(openaiCall) }),
    },
    ...calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: call.result })),
  ]);
}

/** Messages of content blocks: assistant (text, tool_use ...), user (tool_result ...), ... */
export function anthropicMessages(segments: readonly Segment[]): Message[] {
  return saidIn(segments).flatMap(({ text, calls }): Message[] => {
    // The provider refuses a last message that ends in white space.
    const told = calls.length > 0 ? text : text.trimEnd();
    const content = [
      ...(told === "" ? [] : [{ type: "text", text: told }]),
      ...calls.map(({ id, name, arguments: input }) => ({ type: "tool_use", id, name, input })),
    ];
    const results = calls.map((call) => ({
      type: "tool_result",
      tool_use_id: call.id,
      content: call.result,
      ...(call.failed ? { is_error: true } : {}),
    }));
    const assistant = { role: "assistant", content };
    return calls.length === 0 ? [assistant] : [assistant, { role: "user", content: results }];
  });
}

function openaiCall(call: Call): Message {
  const told = { name: call.name, arguments: JSON.stringify(call.arguments) };
  return { id: call.id, type: "function", function: told };
}

/** Text after a call, and a call of a later step, belong to the next message. */
function saidIn(segments: readonly Segment[]): Said[] {
  const all: Said[] = [];
  const ids = new Set<string>();
  let said: Said = { text: "", calls: [], step: -1 };
  let isParted = false; // by a call that is not sent
  for (const segment of segments) {
    const sendable = sendableArguments(segment);
    if (segment.kind !== "text" && sendable === null) {
      isParted ||= segment.kind === "tool";
      continue;
    }
    if (said.calls.length > 0 && (segment.kind === "text" || segment.step !== said.step)) {
      all.push(said);
      said = { text: "", calls: [], step: said.step };
    }
    if (sendable === null) {
      const isNext = segment.step !== said.step;
      if (isNext && said.text.trim() !== "" && segment.text.trim() !== "") said.text += BLANK_LINE;
      else if (isParted) said.text += between(said.text, segment.text);
      said.text += segment.text;
      isParted = false;
    } else {
      said.calls.push(callOf(segment, sendable, ids));
    }
    said.step = segment.step;
  }
  all.push(said);
  for (const one of all) one.text = one.text.trim() === "" ? "" : one.text.toWellFormed();
  return all.filter((one) => one.text !== "" || one.calls.length > 0);
}

/** A blank line where the last word before a call and the first behind it would read as one. */
export function between(before: string, behind: string): string {
  const isGlued = /\S$/u.test(before) && /^\S/u.test(behind);
  return isGlued ? BLANK_LINE : "";
}

/** The arguments of a call that may be sent; null for any other segment. */
function sendableArguments(segment: Segment): object | null {
  const isAnswered = segment.outcome === "done" || segment.outcome === "failed";
  if (segment.kind !== "tool" || !segment.name || !isAnswered) return null;
  const text = segment.arguments ?? "";
  const trimmed = text.trim();
  if (trimmed === "" || trimmed === "null") return {};
  let value: unknown = text.toWellFormed();
  try {
    value = JSON.parse(trimmed);
  } catch {
    // it is the text itself
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  const isCut = trimmed.startsWith("{") && !trimmed.endsWith("}");
  return { input: value, ...(isCut ? { note: CUT } : {}) };
}

function callOf(segment: Segment, sendable: object, ids: Set<string>): Call {
  let id = segment.callId ?? "";
  if (!/^[A-Za-z0-9_-]{1,40}$/.test(id) || ids.has(id)) {
    const own = createHash("sha256").update(`${segment.firstSeq}:${id}`).digest("hex");
    id = `call_${own.slice(0, 32)}`;
  }
  ids.add(id);
  const { result, outcome } = segment;
  const isText = typeof result === "string" && result.trim() !== "";
  return {
    id,
    name: segment.name!.replace(/[^A-Za-z0-9_-]/gu, "_").slice(0, 64),
    arguments: sendable,
    // An empty result as JSON, since some providers refuse an empty message.
    result: isText ? result.toWellFormed() : JSON.stringify(result ?? null),
    failed: outcome === "failed",
  };
}

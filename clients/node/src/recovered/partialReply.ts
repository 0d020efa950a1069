/**
 * A recovered reply: the daemon's answer as plain objects, and as messages.
 *
 * Owns: `PartialReply` and its plain messages. Refuses: asking. The same answer of the daemon gives
 * the same object, and nothing in it was made up: a half character that stays alone is a half here
 * (`toWellFormed()` shows it); bytes that are no text at all are U+FFFD.
 */

import * as values from "../encoding/valueEncoding.ts";
import { decodeAnswer } from "../wire/codec.ts";
import type { WireRecovered } from "../wire/messages.ts";
import { anthropicMessages, between, openaiMessages } from "./providerMessages.ts";
import { segmentOf, type Gap, type Segment } from "./segment.ts";

/** What `reply.error` was told. */
export interface ReplyError {
  message: string;
  kind: string | null;
  detail: unknown;
}

/** Where a step of an attempt begins, and what `reply.step` was told; the first step has none. */
export interface StepBegun {
  attempt: number;
  step: number;
  seq: number;
  at: Date;
  info: unknown;
}

/** Where an attempt (from 1) begins, and what `reply.retry` was told. step: only the step under way began anew. */
export interface Retried {
  attempt: number;
  seq: number;
  at: Date;
  reason: string | null;
  step: boolean;
}

export type Format = "plain" | "openai" | "anthropic";

/** A message as an application may store it; `_wal_stream` and `_wal_seq` are its identity. */
export interface PlainMessage {
  role: "assistant";
  content: string;
  reasoning?: string;
  tool_calls?: Record<string, unknown>[];
  tool_results?: Record<string, unknown>[];
  _wal_recovered: true;
  _partial?: true;
  _partial_reason?: string;
  _wal_stream: string;
  _wal_seq: number;
  _wal_last_seq: number;
  _wal_started_at: number;
  _wal_last_event_at: number;
  /** What `reply.step` was told. */
  _wal_info?: unknown;
}

/** A reply that was not released, as far as it got. */
export class PartialReply {
  readonly streamId: string;
  readonly sessionId: string;
  readonly turnId: string | null;
  readonly parent: string | null;
  readonly meta: unknown;
  /** live | complete | cancelled | errored | crashed */
  readonly status: string;
  /** The process it belongs to is there, whatever the status: only others are orphans to adopt. */
  readonly ownerAlive: boolean;
  /** Why a reply that was cancelled or crashed ended. */
  readonly lostReason: string | null;
  readonly error: ReplyError | null;
  readonly finishReason: string | null;
  readonly startedAt: Date;
  readonly lastEventAt: Date;
  /** What `resolve` takes. */
  readonly lastSeq: number;
  /** Any makes the reply partial. */
  readonly gaps: Gap[];
  /** 1, and one more for each retry. */
  readonly attempts: number;
  readonly events: number;
  /** It is not whole, and partialReason says by what evidence. */
  readonly partial: boolean;
  readonly partialReason: string | null;
  /** Everything, in order, earlier attempts too. */
  readonly segments: Segment[];
  readonly walRecovered = true;
  /** Why there may be more replies than those told with it, or a later one; null: there are none. */
  readonly doubt: string | null;
  /** The application whose it is; null: everybody's, of a client that names none. */
  readonly app: string | null;
  /** Where steps begin, by attempt. */
  readonly steps: StepBegun[];
  /** Where attempts do. */
  readonly retries: Retried[];

  constructor(wire: WireRecovered) {
    this.streamId = wire.stream_id;
    this.sessionId = wire.session_id;
    this.turnId = wire.turn_id;
    this.parent = wire.parent;
    this.meta = wire.meta === null ? {} : values.unpacked(wire.meta);
    this.status = wire.status;
    this.ownerAlive = wire.owner_alive;
    this.lostReason = wire.lost_reason;
    this.error = wire.error && { ...wire.error, detail: values.unpacked(wire.error.detail) };
    this.finishReason = wire.finish_reason;
    this.startedAt = new Date(wire.started_at_ms);
    this.lastEventAt = new Date(wire.last_event_at_ms);
    this.lastSeq = wire.last_seq;
    this.gaps = wire.gaps.map((gap) => ({
      firstSeq: gap.first_seq,
      lastSeq: gap.last_seq,
      verdict: gap.verdict,
    }));
    this.attempts = wire.attempts;
    this.events = wire.events;
    this.partial = wire.partial;
    this.partialReason = wire.partial_reason;
    this.segments = wire.segments.map(segmentOf);
    this.doubt = wire.doubt;
    this.app = wire.app;
    this.steps = wire.steps.map(({ at_ms, info, ...one }) => ({
      ...one,
      at: new Date(at_ms),
      info: values.unpacked(info),
    }));
    this.retries = wire.retries.map(({ at_ms, ...one }) => ({ ...one, at: new Date(at_ms) }));
  }

  /** Of the last attempt, all steps joined. */
  get text(): string {
    return joined(this.lastAttempt(), "text");
  }

  /**
   * The last attempt as messages. A reply that said nothing gives none.
   *
   * "plain": one a step, with the keys that name its place in the log. "openai", "anthropic": what may be
   * sent to the provider as it is.
   */
  messages(format?: "plain"): PlainMessage[];
  messages(format: "openai" | "anthropic"): Record<string, unknown>[];
  messages(format: Format = "plain"): PlainMessage[] | Record<string, unknown>[] {
    switch (format) {
      case "plain":
        return this.plain();
      case "openai":
        return openaiMessages(this.lastAttempt());
      case "anthropic":
        return anthropicMessages(this.lastAttempt());
      default:
        throw new RangeError(`format '${String(format)}' is none of plain, openai, anthropic`);
    }
  }

  /** The one message of this reply; null where it said nothing. Throws where it is more than one. */
  toMessage(): PlainMessage | null {
    const messages = this.messages();
    if (messages.length > 1) {
      throw new RangeError(
        `reply '${this.streamId}' is ${messages.length} messages, limit 1: use messages()`,
      );
    }
    return messages[0] ?? null;
  }

  private plain(): PlainMessage[] {
    const steps = new Map<number, Segment[]>();
    for (const segment of this.lastAttempt()) {
      const step = steps.get(segment.step);
      if (step === undefined) steps.set(segment.step, [segment]);
      else step.push(segment);
    }
    const told = [...steps.values()];
    const begun = this.steps.filter((one) => one.attempt === this.attempts - 1);
    return told.flatMap((step, at) => {
      const said = saidIn(step);
      if (said === null) return [];
      const info = begun.find((one) => one.step === step[0]!.step)?.info ?? null;
      const place = this.place(step, told[at + 1]);
      return [{ ...said, ...place, ...(info === null ? {} : { _wal_info: info }) }];
    });
  }

  private lastAttempt(): Segment[] {
    return this.segments.filter((segment) => segment.attempt === this.attempts - 1);
  }

  /**
   * Where a step's message stands in the log.
   *
   * The last seq of a step that is followed by another reaches up to that one, so it only ever
   * grows: the message as first recovered is replaced by the one that is known to be whole.
   */
  private place(step: Segment[], following: Segment[] | undefined) {
    const until = following === undefined ? this.lastSeq : following[0]!.firstSeq - 1;
    let reason = reasonOf(step);
    if (following === undefined && this.partial && !this.isAboutAnEmptyStep(step)) {
      reason = this.partialReason;
    }
    const last = following === undefined ? this.lastEventAt : step.at(-1)!.at;
    return {
      _wal_recovered: true as const,
      ...(reason === null ? {} : { _partial: true as const, _partial_reason: reason }),
      _wal_stream: this.streamId,
      _wal_seq: step[0]!.firstSeq,
      _wal_last_seq: Math.max(until, ...step.map((segment) => segment.lastSeq)),
      _wal_started_at: step[0]!.at.getTime() / 1000,
      _wal_last_event_at: last.getTime() / 1000,
    };
  }

  /** True where the reply is partial for a later step that has said nothing yet. */
  private isAboutAnEmptyStep(step: Segment[]): boolean {
    if (this.partialReason !== "answer_missing") return false;
    const said = step.filter((one) => one.kind !== "custom" && one.kind !== "gap");
    while (said.at(-1)?.kind === "text" && said.at(-1)!.text.trim() === "") said.pop();
    return said.at(-1)?.kind === "text";
  }
}

/** The answer to Recover and List. */
export function repliesOf(answer: Uint8Array): PartialReply[] {
  return (decodeAnswer(answer, "[Recovered]") as WireRecovered[]).map((one) => new PartialReply(one));
}

/** What a step says, without its place; null where it has no content (custom events, gaps). */
function saidIn(step: Segment[]) {
  const reasoning = joined(step, "reasoning");
  const calls = step.filter((one) => one.kind === "tool");
  const orphans = step.filter((one) => one.kind === "tool_result");
  const hasText = step.some((one) => one.kind === "text" || one.kind === "reasoning");
  if (!hasText && calls.length + orphans.length === 0) return null;
  return {
    role: "assistant" as const,
    content: parted(step),
    ...(reasoning === "" ? {} : { reasoning }),
    ...(calls.length === 0
      ? {}
      : {
          tool_calls: calls.map((one) => ({
            id: one.callId,
            name: one.name,
            arguments: one.arguments,
            arguments_complete: one.argumentsComplete,
            outcome: one.outcome,
            result: one.result,
          })),
        }),
    ...(orphans.length === 0
      ? {}
      : {
          tool_results: orphans.map((one) => ({
            id: one.callId,
            name: one.name,
            outcome: one.outcome,
            result: one.result,
          })),
        }),
  };
}

/** The step's text, what stands behind a call apart from what stands before it. */
function parted(step: Segment[]): string {
  let text = "";
  let isParted = false;
  for (const segment of step) {
    if (segment.kind === "tool") isParted = true;
    if (segment.kind !== "text" || segment.text === "") continue;
    if (isParted) text += between(text, segment.text);
    text += segment.text;
    isParted = false;
  }
  return text;
}

function joined(segments: Segment[], kind: string): string {
  return segments.map((one) => (one.kind === kind ? one.text : "")).join("");
}

/** Why a step is partial for what it holds itself. */
function reasonOf(step: Segment[]): string | null {
  if (step.some((one) => one.kind === "gap")) return "gap";
  if (step.some((one) => one.kind === "tool" && one.outcome === "unknown")) return "tool_open";
  return null;
}

/**
 * Turns the parts of a model's stream into calls of a reply, for the middleware and for the SSE sink.
 *
 * Owns: which event becomes which call, that nothing is recorded twice, and how a stream ends.
 * Sans-IO. Refuses: streams (`middleware.ts`, `sse.ts`), throwing: a program must not notice.
 *
 * A stream is whole only where its terminal marker was seen. A body that merely ends is an error of
 * kind `no_terminal_event`. An error within the stream counts when the stream ends, because some
 * providers go on behind it and what they say is still delivered.
 *
 * Answers come one after the other. A request while one is under way means that the program has left
 * that one: SDKs read ahead of who has left, and what still comes of it is nobody's.
 */

import { errorName } from "../encoding/errorFields.ts";
import * as values from "../encoding/valueEncoding.ts";
import { warn } from "../link/warnings.ts";
import type { Info } from "../reply/options.ts";
import type { Reply } from "../reply/reply.ts";
import { CallNames } from "./callNames.ts";
import { ModelSaid, type AskedOf, type Told } from "./modelSaid.ts";

const NO_TERMINAL_EVENT = "no_terminal_event";
/** Finish reasons that are no end: the daemon's verdict is `provider_error` for these. */
const FAILURES: ReadonlySet<string> = new Set([
  "abort", "aborted", "error", "failed", "insufficient_system_resource", "malformed_function_call",
  "malformed_model_output", "malformed_response", "malformed_tool_use", "missing_thought_signature", "network_error",
  "timeout", "too_many_tool_calls", "unexpected_tool_call",
]);
const SIGNATURES: ReadonlySet<string> = new Set([
  "signature", "redactedData", "reasoningEncryptedContent", "thoughtSignature",
]);
const LEFT = "the answer before it was left before its end";

let hasWarnedOfTwo = false;

/** That of each reply: models that answer one after the other for it know of each other. */
const recorders = new WeakMap<Reply, Recorder>();

export class Recorder {
  static of(reply: Reply): Recorder {
    let recorder = recorders.get(reply);
    if (recorder === undefined) recorders.set(reply, (recorder = new Recorder(reply)));
    return recorder;
  }

  private readonly reply: Reply;
  private readonly calls = new CallNames();
  /** How many results of each call id the prompt of the latest request has. */
  private resultsBefore: ReadonlyMap<string, number> = new Map();
  private callsBegun = 0;
  private failure: { error: unknown } | undefined;
  /** What is said of the model of the latest request; undefined where nobody tells of it. */
  private model: ModelSaid | undefined;
  /** What the program aborts the latest request with. */
  private signal: AbortSignal | undefined;
  /** The terminal marker of the latest answer was seen. */
  private isFinished = false;
  /** The latest answer came to its end: the next request is another step. */
  private isWhole = false;
  private hasWarned = false;

  constructor(reply: Reply) {
    this.reply = reply;
  }

  /** The number of the latest request, 0 if none. */
  get latest(): number {
    return this.callsBegun;
  }

  /**
   * A request to the model begins, its number: behind a whole answer the next step, behind one that
   * failed or was left the same again, unless the program has said that itself (`reply.retry`).
   *
   * signal: what the program aborts it with. asked: of which model, with what. continues: by the
   * program's word it goes on behind what was cut: it adds to that.
   */
  begin(signal?: AbortSignal, asked?: AskedOf, continues = false): number {
    const isAgain = this.failure !== undefined || (this.callsBegun > 0 && !this.isWhole);
    this.guard(() => {
      if (isAgain && continues) return;
      if (isAgain) {
        const reason = this.failure === undefined ? LEFT : shown(this.failure.error);
        if (this.reply.isUnfinished) this.reply.retry(reason, { step: true });
      } else if (this.callsBegun > 0) this.reply.step();
    });
    this.signal = signal;
    this.model = asked && new ModelSaid(this.reply, asked, isAgain && continues);
    this.callsBegun += 1;
    this.failure = undefined;
    this.isFinished = this.isWhole = false;
    this.calls.answerBegins();
    this.reply.answering(signal);
    return this.callsBegun;
  }

  /** Is it this request of which the answer is awaited? Else it is the program's no more. */
  isLatest(request: number): boolean {
    return request === this.callsBegun;
  }

  /** The answer says whose it is. */
  answers(told: Told | null | undefined): void {
    this.guard(() => this.model?.answers(told));
  }

  /** What it took: numbers of the SDK's. */
  used(usage: unknown): void {
    this.guard(() => this.model?.used(usage));
  }

  text(delta: string): void {
    try {
      this.reply.token(delta); // the way of nearly all parts: no function is made for it
    } catch (error) {
      this.missed(error);
    }
  }

  reasoning(delta: string): void {
    this.guard(() => this.reply.reasoning(delta));
  }

  /** What stands beside it: what has to be sent back with it, or what nobody knows. */
  beside(kind: string, payload: unknown): void {
    this.guard(() => this.reply.event(kind, payload));
  }

  /** What the provider's words of a part say that has to be sent back with it. */
  signed(metadata: unknown): void {
    const found = signaturesIn(metadata);
    if (found !== undefined) this.beside("signature", found);
  }

  toolStart(callId: string, name: string): void {
    this.guard(() => {
      this.reply.tool(name, undefined, named(this.calls.begin(callId, name, "")));
    });
  }

  toolDelta(callId: string, delta: string): void {
    this.guard(() => {
      const call = this.calls.ofPiece(callId);
      if (call !== undefined) call.streamed = (call.streamed ?? "") + delta;
      this.reply.toolArguments(delta, { callId: call?.name ?? callId });
    });
  }

  /** The call as a whole. What was streamed of it is not said again. No input at all is one of none. */
  tool(callId: string, name: string, input: unknown): void {
    this.guard(() => {
      const call = this.calls.ofWhole(callId) ?? this.calls.begin(callId, name);
      const { streamed } = call;
      const isNone = typeof input === "string" && input.trim() === "";
      const text = isNone ? "{}" : typeof input === "string" ? input : JSON.stringify(input);
      const isSame = streamed !== undefined && (streamed === text || isSameJson(streamed, input));
      if (!isSame) this.reply.tool(name, text, named(call));
    });
  }

  /** Only of a call of this reply, and only the first. */
  toolResult(callId: string, name: string | undefined, result: unknown, failed: boolean): void {
    this.guard(() => {
      const call = this.calls.ofResult(callId, name);
      if (call === undefined) return;
      this.reply.toolResult(result ?? null, { callId: call.name, failed, ...(name ? { name } : {}) });
    });
  }

  /**
   * A request has these results, by call id: which of them no request before it had? Some servers'
   * ids come again in each answer, so that an id is no evidence: there must be more of it than when
   * the answer was asked for. Where more are new than the answer has calls of that id, nobody can tell
   * which is whose.
   */
  resultsAsked(counts: ReadonlyMap<string, number>): (callId: string) => boolean {
    const before = this.resultsBefore;
    this.resultsBefore = counts;
    return (callId) => {
      const added = (counts.get(callId) ?? 0) - (before.get(callId) ?? 0);
      return added > 0 && added <= Math.max(1, this.calls.count(callId));
    };
  }

  /** As `toolResult`, told by a request: who ran a call of the answer that was left took that as it was. */
  toolResultAsked(callId: string, name: string | undefined, result: unknown, failed: boolean): void {
    if (this.calls.count(callId) > 0) this.isWhole = true;
    this.toolResult(callId, name, result, failed);
  }

  /**
   * The terminal marker. null: the SDK says the end, but the provider did not. "error" and the like, the
   * provider's word or the SDK's, is no end but a failure.
   */
  finish(reason: string | null): void {
    if (isFailure(reason)) this.fail(errorOf("finish_reason_error", `the finish reason is '${reason}'`));
    if (reason === null || this.failure !== undefined) return;
    this.isFinished = this.isWhole = true;
    this.reply.answered();
    this.guard(() => this.model?.ended());
    this.guard(() => this.reply.finish(reason));
  }

  /** The answer came to its end, the run did not: nothing says the provider's marker here. */
  stepOver(): void {
    this.isWhole = true;
  }

  /** An error that the stream tells of, or a request that was refused: the first one counts. */
  fail(error: unknown): void {
    this.failure ??= { error };
  }

  /** No answer came. */
  refused(error: unknown): void {
    this.fail(error);
    this.over();
  }

  /**
   * The stream is over, by its end or by what `fail` was told.
   *
   * What failed may be asked for again, by the SDK or by the program, and neither says here that it
   * gave up. So the reply is errored, or cancelled by an AbortError, where it is left at that.
   */
  over(): void {
    const isCut = this.failure === undefined ? !this.isFinished : isEndWithoutMarker(this.failure.error);
    if (isCut) this.failure = { error: errorOf(NO_TERMINAL_EVENT, "the stream ended without its terminal event") };
    if (this.failure === undefined) return;
    const error = asError(this.failure.error);
    const { signal } = this;
    const isWish = signal?.aborted === true && errorName(signal.reason) !== "TimeoutError"; // as the reply has it
    this.guard(() => this.model?.failed(this.failure!.error, isWish));
    this.guard(() => this.reply.failAtEnd(error));
  }

  /** Nobody reads the stream any more. Behind its terminal marker nothing is missing. */
  cancel(reason: string): void {
    if (this.failure !== undefined) this.over();
    else if (!this.isFinished) this.guard(() => this.reply.cutAtEnd(reason));
  }

  /**
   * An answer that was left came to its end all the same: read by the SDK, which is nothing, or by the
   * program, which has two at a time. Said once a process, as nobody can tell.
   */
  superseded(): void {
    if (hasWarnedOfTwo) return;
    hasWarnedOfTwo = true;
    warn(
      `reply '${this.reply.streamId}': a request came before the end of the answer to the one before, of` +
        " which no more is recorded; answers at the same time need a reply each",
    );
  }

  /** A part could not be recorded. Said once; the program goes on. */
  missed(error: unknown): void {
    if (this.hasWarned) return;
    this.hasWarned = true;
    warn(`walld could not record a part of reply '${this.reply.streamId}': ${shown(error)}`);
  }

  private guard(say: () => void): void {
    try {
      say();
    } catch (error) {
      this.missed(error);
    }
  }
}

/** In the vendors' words of a part, by vendor, those that say a signature; undefined where there is none. */
function signaturesIn(metadata: unknown): Record<string, Record<string, string>> | undefined {
  const found: Record<string, Record<string, string>> = {};
  if (typeof metadata !== "object" || metadata === null) return undefined;
  for (const [vendor, said] of Object.entries(metadata)) {
    for (const [name, value] of Object.entries((said ?? {}) as Record<string, unknown>)) {
      if (SIGNATURES.has(name) && typeof value === "string" && value !== "") (found[vendor] ??= {})[name] = value;
    }
  }
  return Object.keys(found).length > 0 ? found : undefined;
}

export function isFailure(reason: unknown): boolean {
  return typeof reason === "string" && FAILURES.has(reason.trim().toLowerCase().replace(/[- ]/g, "_"));
}

/** Some providers of the SDK tell of a body that merely ended as an error of theirs. */
function isEndWithoutMarker(error: unknown): boolean {
  if (errorName(error) !== "AI_InvalidResponseDataError") return false;
  return /without a finish reason/.test(shown(error));
}

/** What a call is called; of which id it is, where that is another. */
function named({ name, given }: { name: string; given: string }): { callId: string; info?: Info } {
  return name === given ? { callId: name } : { callId: name, info: { given_id: given } };
}

function errorOf(kind: string, message: string): Error {
  const error = new Error(message);
  error.name = kind;
  return error;
}

/** In the words of a thrown error, whatever it was: of what cannot be read, as it is. */
function asError(error: unknown): unknown {
  try {
    if (error instanceof Error || typeof error !== "object" || error === null) return error;
    const { type, code, name, message } = error as Record<string, unknown>;
    const made = new Error(typeof message === "string" ? message : values.jsonText(error));
    const kinds = [type, code, name].filter((one) => typeof one === "string" && one !== "error");
    made.name = (kinds[0] as string | undefined) ?? "Error"; // the type of OpenAI's is "error", its code says which
    return made;
  } catch {
    return error;
  }
}

function shown(error: unknown): string {
  try {
    return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  } catch {
    return typeof error;
  }
}

function isSameJson(text: string, value: unknown): boolean {
  try {
    return JSON.stringify(JSON.parse(text)) === JSON.stringify(value);
  } catch {
    return false;
  }
}

/**
 * One reply of an agent: the calls an application makes while it streams.
 *
 * Owns: the meaning of each call and the first-terminal-wins rule. Refuses: waiting. Every call but
 * `drain` and `run` returns at once, with the seq it used, or 0 where nothing was sent.
 *
 * A call throws TypeError or RangeError for what only a mistake in the program can cause (an id that
 * is not one, a text that is no string, a release before the end); never for the daemon's sake.
 */

/// <reference lib="esnext.disposable" preserve="true" />
import { checkArgument } from "../encoding/argumentChecks.ts";
import { checkedId, idIn, type EntryId } from "../encoding/ids.ts";
import { reasonOf, redacted, redactedJson, type Redact } from "../encoding/redact.ts";
import * as values from "../encoding/valueEncoding.ts";
import * as wtf8 from "../encoding/wtf8.ts";
import { Refused } from "../errors.ts";
import { NAME_BYTES_MAX, REASON_BYTES_MAX, TIMEOUT_MS } from "../limits.ts";
import { LEVELS, type Level } from "../link/durability.ts";
import { REASONING, TOKEN } from "../link/eventFrames.ts";
import type { Link } from "../link/link.ts";
import type { Stream } from "../link/stream.ts";
import { UnfinishedAnswer, terminalEventOf } from "../link/terminalEvents.ts";
import type { Fields } from "../wire/codec.ts";
import type { MessageName } from "../wire/messages.ts";
import { MODEL_CALL, checkedFacts, type ModelFacts } from "./modelChecks.ts";
import { OpenCalls } from "./openCalls.ts";
import type { Info } from "./options.ts";

/** Replies whose object is collected unended are cancelled. The stream holds no Reply. */
const abandoned = new FinalizationRegistry<{ link: Link; stream: Stream }>(({ link, stream }) =>
  link.leave(stream),
);

export class Reply {
  private readonly link: Link;
  private readonly stream: Stream;
  private readonly redact: Redact | undefined;
  private readonly autoRelease: boolean;
  /** The calls it has said, for the journal of its turn. @internal */
  readonly calls = new OpenCalls();
  /** Of the answer under way. Not in the stream: what hears a signal may hold this object. */
  private signal: AbortSignal | undefined;

  /** Made by `client.reply` and `turn.reply`. @internal */
  constructor(link: Link, stream: Stream, redact: Redact | undefined, autoRelease: boolean) {
    this.link = link;
    this.stream = stream;
    this.redact = redact;
    this.autoRelease = autoRelease;
    abandoned.register(this, { link, stream });
  }

  // --- who it is, how far it is ---

  /** The id to stamp on the message when the application saves it. */
  get streamId(): string {
    return this.stream.streamId;
  }

  /** The session it belongs to now. */
  get sessionId(): string {
    return this.stream.sessionId;
  }

  /** The turn it answers, if it was given one. */
  get turnId(): string | null {
    return this.stream.turnId;
  }

  /** It ended, in whatever way. */
  get hasEnded(): boolean {
    return this.stream.terminal;
  }

  /**
   * Highest seq the kernel has taken for the daemon at hand, -1 if not even the start: so much
   * survives SIGKILL of this process. After a daemon's death it falls back to what is known synced,
   * until the rest is resent.
   */
  get sentSeq(): number {
    return this.stream.taken;
  }

  /**
   * Every event up to this seq is known synced: it survives the loss of power. -1 if none. It stops
   * for good below the first event that was dropped, refused, or given up unsynced.
   */
  get durableSeq(): number {
    return this.stream.durable;
  }

  // --- text ---

  /** A piece of the reply's text. Returns its seq (the last one, if it had to be split). */
  token(text: string, info?: Info): number {
    return this.text(TOKEN, text, info);
  }

  /** A piece of the model's reasoning: kept, never sent back to a provider. */
  reasoning(text: string, info?: Info): number {
    return this.text(REASONING, text, info);
  }

  // --- tools ---

  /**
   * A tool call. Without callId it is "<stream>:<seq>".
   *
   * The same one again updates it, until its result, `finish` or `step`; then it is another.
   */
  tool(name: string, args?: unknown, options: { callId?: EntryId; info?: Info } = {}): number {
    const given = options.callId ? idIn(options.callId, "callId") : undefined;
    const [encoded, trueBytes] = args === undefined ? [null, 0] : this.cutText(values.jsonText(args), true);
    const toolName = values.clean(name, NAME_BYTES_MAX);
    if (this.isLate()) return 0;
    const callId = given ?? `${this.streamId}:${this.stream.nextSeq}`;
    const seq = this.say("Tool", {
      call_id: callId,
      name: toolName,
      arguments: encoded,
      info: values.infoBytes(options.info),
      truncated_from: trueBytes,
    });
    this.calls.add(callId, toolName, seq, options.info?.given_id);
    return seq;
  }

  /** The next piece of a call's JSON arguments, as the provider streams them. */
  toolArguments(delta: string, options: { callId: EntryId }): number {
    const callId = idIn(options.callId, "callId");
    let seq = 0;
    for (const piece of this.pieces(delta)) {
      seq = this.say("ToolArguments", { call_id: callId, delta: piece });
    }
    return seq;
  }

  /**
   * What a tool gave back: a string as it is, anything else as JSON.
   *
   * Without callId it belongs to the newest open call of that name, or, where no name is given
   * either, to the one open call; else it stands alone.
   */
  toolResult(
    result: unknown,
    options: { callId?: EntryId; name?: string; failed?: boolean; info?: Info } = {},
  ): number {
    const given = options.callId ? idIn(options.callId, "callId") : undefined;
    const name = options.name ? values.clean(options.name, NAME_BYTES_MAX) : undefined;
    const isJson = typeof result !== "string";
    const [encoded, trueBytes] = this.cutText(isJson ? values.jsonText(result) : result, isJson);
    if (this.isLate()) return 0;
    const callId = given === undefined ? this.calls.find(name) : this.calls.byId(given, name);
    const known = this.calls.close(callId);
    return this.say("ToolResult", {
      call_id: callId ?? null,
      name: name ?? known ?? null,
      result: encoded,
      json: isJson,
      failed: options.failed ?? false,
      info: values.infoBytes(options.info),
      truncated_from: trueBytes,
    });
  }

  // --- the shape of the run ---

  /** From here on it is the next assistant message of the same run. */
  step(info?: Info): number {
    const seq = this.say("Step", { info: values.infoBytes(info) });
    if (seq > 0) this.calls.nextStep();
    return seq;
  }

  /** The application's own event, kept in order, never part of the text. */
  event(kind: string, payload: unknown = null): number {
    const [encoded, trueBytes] = values.payloadBytes(payload, this.link.ackHandler.textBytesMax);
    return this.say("Custom", {
      kind: values.clean(kind, NAME_BYTES_MAX),
      payload: encoded,
      truncated_from: trueBytes,
    });
  }

  /**
   * What is known of the model's call whose answer this step is, as often as more is known.
   *
   * What is not said follows from how the reply ends. In a session it outlives the reply, as an entry of type
   * `model_call`.
   */
  modelCall(facts: ModelFacts): number {
    return this.event(MODEL_CALL, checkedFacts(facts));
  }

  /**
   * What came before is a finished attempt, kept apart; the text starts again.
   *
   * step: only the step under way is done again; the steps before it, with their calls and results,
   * stand.
   */
  retry(reason?: string, options: { step?: boolean } = {}): number {
    this.stream.unfinished = undefined;
    const isOfStep = options.step === true;
    const seq = this.say("Retry", { reason: reasonOf(reason, this.redact), step: isOfStep });
    if (seq > 0) this.calls.retry(isOfStep);
    return seq;
  }

  /** The reply belongs to another session from here on. */
  move(sessionId: string): number {
    checkedId(sessionId, "sessionId");
    const seq = this.say("Move", { session_id: sessionId });
    if (seq > 0) this.stream.sessionId = sessionId;
    return seq;
  }

  /** The provider's own terminal marker was seen. */
  finish(reason?: string): number {
    const seq = this.say("Finish", { reason: reasonOf(reason, this.redact) });
    if (seq > 0) this.calls.finish();
    return seq;
  }

  // --- terminals: the first one wins ---

  /**
   * The reply is whole and the application's copy is safe: walld may forget it.
   *
   * 0 where it is known not to be whole (`walldMiddleware` saw its answer fail or aborted, and nobody
   * has asked again): then it is errored or cancelled, and stays. Of an answer that the program itself
   * read no further this is its word.
   */
  end(finishReason?: string): number {
    if (this.unfinished?.isFailed && this.fails()) return 0;
    const seq = this.terminal("End", { clean: true, finish_reason: reasonOf(finishReason, this.redact) });
    if (seq > 0 && this.autoRelease) this.link.release(this.stream);
    return seq;
  }

  /** The run was stopped. What it said stays until it is released or resolved. */
  cancel(reason?: string): number {
    return this.terminal("End", { clean: false, reason: reasonOf(reason, this.redact) });
  }

  /** The run failed. What it said stays until it is released or resolved. */
  error(message: string, options: { kind?: string; detail?: unknown } = {}): number {
    const text = typeof message === "string" ? message : String(message);
    let { detail } = options;
    if (this.redact && detail !== undefined) detail = redacted(values.plain(detail), this.redact);
    return this.terminal("AppError", {
      message: values.clean(this.redacted(text), REASON_BYTES_MAX),
      kind: options.kind === undefined ? null : values.clean(options.kind, NAME_BYTES_MAX),
      detail: detail === undefined ? null : values.valueBytes(detail),
    });
  }

  /** The application's copy is safe. Legal after any terminal; RangeError before one. */
  release(): number {
    return this.link.release(this.stream);
  }

  // --- leaving ---

  /**
   * Do the work of the reply; what `work` gives or throws is given or thrown.
   *
   * Where it returns and nothing ended the reply, that is complete and kept, or cancelled where
   * `walldMiddleware` has seen an answer begin and not come to its end; what it throws makes it an
   * error, an AbortError a cancel.
   */
  async run<T>(work: (reply: this) => T | PromiseLike<T>): Promise<T> {
    try {
      const value = await work(this);
      if (!this.hasEnded && !this.fails()) {
        if (this.isUnfinished) this.cancel("left before its answer was whole");
        else this.terminal("End", { clean: true });
      }
      return value;
    } catch (error) {
      this.failed(error);
      throw error;
    }
  }

  /** What somebody threw: an error, or a cancel where it is an AbortError. The first end wins. */
  failed(error: unknown): number {
    const { name, fields } = terminalEventOf(error, (text) => this.redacted(text));
    return this.terminal(name, fields);
  }

  // --- for the middleware, which sees how an answer ends and not whether it is asked for again ---

  /** A model's answer begins, which the program aborts with `signal`: not whole before `answered`. @internal */
  answering(signal?: AbortSignal): void {
    this.signal = signal;
    this.stream.unfinished = new UnfinishedAnswer(this.redact);
  }

  /** It came to its end. @internal */
  answered(): void {
    this.stream.unfinished = undefined;
  }

  /** An answer is not whole, and nobody took it back. @internal */
  get isUnfinished(): boolean {
    return this.stream.unfinished !== undefined;
  }

  /** As `failed`, but said only where the reply is left, or ended as whole. @internal */
  failAtEnd(error: unknown): void {
    this.notWhole().fail(error);
  }

  /** As `cancel`, but said only where the reply is left. @internal */
  cutAtEnd(reason: string): void {
    this.notWhole().cut(reason);
  }

  /**
   * `using` and `await using`: a reply that nothing ended is cancelled, and kept.
   *
   * Not "complete": a disposer cannot see whether an exception is on its way. `run` can.
   */
  [Symbol.dispose](): void {
    if (!this.hasEnded && !this.fails()) this.cancel("left without an end");
  }

  /** As the other one. It waits for nothing. */
  [Symbol.asyncDispose](): Promise<void> {
    this[Symbol.dispose]();
    return Promise.resolve();
  }

  /**
   * Wait until all that was sent so far is at `level`. False: not within `timeoutMs`, or an event of it was
   * refused. Rejects with Refused where all of it was: its streamId is in use.
   */
  drain(options: { timeoutMs?: number; level?: Level } = {}): Promise<boolean> {
    const { level = "written", timeoutMs = TIMEOUT_MS } = options;
    checkArgument(timeoutMs, "timeoutMs", "milliseconds");
    if (!LEVELS.includes(level)) {
      throw new RangeError(`level must be one of ${LEVELS.join(", ")}, got '${level}'`);
    }
    return this.link.isOff ? Promise.resolve(true) : this.drained(level, timeoutMs);
  }

  // --- within ---

  private async drained(level: Level, timeoutMs: number): Promise<boolean> {
    this.checkRefused();
    const isReached = await this.link.drain(level, timeoutMs);
    this.checkRefused();
    return isReached && this.stream.refusal === undefined;
  }

  /** Throws Refused where a daemon took nothing of it. */
  private checkRefused(): void {
    const { refusal, refused } = this.stream;
    if (refusal === undefined || !refused.has(0)) return;
    const what = `reply '${this.streamId}' was refused, nothing of it is kept: release or resolve`;
    const text = `${what} what has its streamId, or give it another one`;
    throw new Refused(refusal.code, refusal.got, refusal.limit, text);
  }

  private get unfinished(): UnfinishedAnswer | undefined {
    const { unfinished } = this.stream;
    if (this.signal?.aborted) unfinished?.abort(this.signal.reason);
    return unfinished;
  }

  private notWhole(): UnfinishedAnswer {
    this.stream.unfinished ??= new UnfinishedAnswer(this.redact);
    return this.unfinished!;
  }

  /** End it as its answer ended, where that failed or was cut. */
  private fails(): boolean {
    return this.unfinished !== undefined && this.link.fail(this.stream);
  }

  private isLate(): boolean {
    if (!this.stream.isLate) return false;
    this.link.lateEvents += 1;
    return true;
  }

  private say(name: MessageName, fields: Fields): number {
    return this.isLate() ? 0 : this.link.event(this.stream, name, fields);
  }

  private terminal(name: MessageName, fields: Fields): number {
    const seq = this.say(name, fields);
    if (seq > 0) this.stream.terminal = true;
    return seq;
  }

  private text(tag: number, text: string, info: Info | undefined): number {
    if (this.redact === undefined && info === undefined && typeof text === "string") {
      // The short way: no lone half, and so short that it fits however it is encoded.
      if (text.length * 3 <= this.link.ackHandler.textBytesMax && text.isWellFormed()) {
        return this.isLate() ? 0 : this.link.text(this.stream, tag, text);
      }
    }
    const about = values.infoBytes(info);
    let seq = 0;
    for (const piece of this.pieces(text)) {
      if (this.isLate()) return seq;
      seq =
        about === null
          ? this.link.text(this.stream, tag, piece)
          : this.say(tag === TOKEN ? "Token" : "Reasoning", { text: piece, info: about });
    }
    return seq;
  }

  private redacted(text: string): string {
    return this.redact === undefined ? text : this.redact(text);
  }

  /** Redacted text as bytes, in pieces that fit an event. */
  private pieces(text: string): Buffer[] {
    if (typeof text !== "string") throw new TypeError(`text must be a string, got ${typeof text}`);
    return wtf8.pieces(wtf8.encode(this.redacted(text)), this.link.ackHandler.textBytesMax);
  }

  /** Arguments or a result as bytes that fit an event; the true length if they were cut. */
  private cutText(text: string, isJson: boolean): [Buffer, number] {
    const said = isJson && this.redact ? redactedJson(text, this.redact) : this.redacted(text);
    const encoded = wtf8.encode(said);
    const piece = wtf8.cut(encoded, this.link.ackHandler.textBytesMax);
    return [piece, piece.length < encoded.length ? encoded.length : 0];
  }
}

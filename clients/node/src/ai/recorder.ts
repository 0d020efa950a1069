/**
 * What a model's stream says, as calls of a reply; the same for every way it is seen.
 *
 * Owns: which event becomes which call, that nothing is recorded twice, and how a stream ends.
 * Sans-IO. Refuses: streams (`middleware.ts`, `sse.ts`), throwing: a program must not notice.
 *
 * A stream is whole only where its terminal marker was seen. A body that merely ends is an error of
 * kind `no_terminal_event`. An error within the stream counts when the stream ends, because some
 * providers go on behind it and what they say is still delivered.
 */

import { warn } from "../dialing.ts";
import type { Reply } from "../reply.ts";

const NO_TERMINAL_EVENT = "no_terminal_event";

/** That of each reply: models that answer one after the other for it know of each other. */
const recorders = new WeakMap<Reply, Recorder>();

export class Recorder {
  static of(reply: Reply): Recorder {
    let recorder = recorders.get(reply);
    if (recorder === undefined) recorders.set(reply, (recorder = new Recorder(reply)));
    return recorder;
  }

  private readonly reply: Reply;
  /** Arguments streamed so far, by call id. */
  private readonly streamed = new Map<string, string>();
  /** Calls of this reply without a result. */
  private readonly open = new Set<string>();
  private callsBegun = 0;
  private failure: { error: unknown } | undefined;
  private isFinished = false;
  private hasWarned = false;

  constructor(reply: Reply) {
    this.reply = reply;
  }

  /** A request to the model begins: after a whole answer the next step, after a failure the same again. */
  begin(): void {
    this.guard(() => {
      if (this.failure !== undefined) this.reply.retry(shown(this.failure.error), { step: true });
      else if (this.callsBegun > 0) this.reply.step();
      this.callsBegun += 1;
      this.failure = undefined;
      this.isFinished = false;
      this.streamed.clear(); // an id may come again, and then nothing of it was said
    });
  }

  text(delta: string): void {
    this.guard(() => this.reply.token(delta));
  }

  reasoning(delta: string): void {
    this.guard(() => this.reply.reasoning(delta));
  }

  toolStart(callId: string, name: string): void {
    this.guard(() => {
      this.streamed.set(callId, "");
      this.open.add(callId);
      this.reply.tool(name, undefined, { callId });
    });
  }

  toolDelta(callId: string, delta: string): void {
    this.guard(() => {
      this.streamed.set(callId, (this.streamed.get(callId) ?? "") + delta);
      this.reply.toolArguments(delta, { callId });
    });
  }

  /** The call as a whole. What was streamed of it is not said again. */
  tool(callId: string, name: string, input: unknown): void {
    this.guard(() => {
      const streamed = this.streamed.get(callId);
      this.streamed.delete(callId);
      this.open.add(callId);
      const text = typeof input === "string" ? input : JSON.stringify(input);
      const isSame = streamed !== undefined && (streamed === text || isSameJson(streamed, input));
      if (!isSame) this.reply.tool(name, text, { callId });
    });
  }

  /** Only of a call of this reply, and only the first: a prompt repeats the results of all steps. */
  toolResult(callId: string, name: string | undefined, result: unknown, failed: boolean): void {
    this.guard(() => {
      if (!this.open.delete(callId)) return;
      this.reply.toolResult(result ?? null, { callId, failed, ...(name ? { name } : {}) });
    });
  }

  /** The terminal marker. null: the SDK says the end, but the provider did not. */
  finish(reason: string | null): void {
    if (reason === null || this.failure !== undefined) return;
    this.isFinished = true;
    this.guard(() => this.reply.finish(reason));
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
   * gave up. So the reply is errored where it is left at that.
   */
  over(): void {
    const isCut = this.failure === undefined ? !this.isFinished : isEndWithoutMarker(this.failure.error);
    if (isCut) this.failure = { error: withoutMarker() };
    if (this.failure === undefined) return;
    const error = asError(this.failure.error);
    this.guard(() => {
      if (isAbort(error)) this.reply.failed(error);
      else this.reply.failAtEnd(error);
    });
  }

  /** Nobody reads the stream any more, or it was aborted. */
  cancel(reason: string): void {
    this.guard(() => this.reply.cancel(reason));
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

/** Some providers of the SDK tell of a body that merely ended as an error of theirs. */
function isEndWithoutMarker(error: unknown): boolean {
  const { name, message } = (error ?? {}) as { name?: unknown; message?: unknown };
  return name === "AI_InvalidResponseDataError" && /without a finish reason/.test(String(message));
}

function withoutMarker(): Error {
  const error = new Error("the stream ended without its terminal event");
  error.name = NO_TERMINAL_EVENT;
  return error;
}

/** The program itself wanted no more. */
function isAbort(error: unknown): boolean {
  return (error as { name?: unknown } | null | undefined)?.name === "AbortError";
}

/** In the words of a thrown error, whatever it was. */
function asError(error: unknown): unknown {
  if (error instanceof Error || typeof error !== "object" || error === null) return error;
  const { type, code, name, message } = error as Record<string, unknown>;
  const made = new Error(typeof message === "string" ? message : JSON.stringify(error));
  const kinds = [type, code, name].filter((one) => typeof one === "string" && one !== "error");
  made.name = (kinds[0] as string | undefined) ?? "Error"; // the type of OpenAI's is "error", its code says which
  return made;
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

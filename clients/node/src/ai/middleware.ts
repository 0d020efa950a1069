/**
 * Language model middleware for the `ai` package: records every part of a stream in a reply before
 * the program gets it.
 *
 *     const model = wrapLanguageModel({ model: openai("..."), middleware: walldMiddleware(reply) });
 *
 * Owns: the order (record, then hand on) and the laziness: a part is read from the model when the
 * program asks for one, never before. Refuses: changing parts, exceptions or the other fields of a
 * result; ending the reply where all is well: `reply.end()` is the program's, once its copy is saved.
 *
 * One reply is one run: a request after a whole answer is its next step (results of tools are taken
 * from the prompt), a request after one that was refused, cut or left is a retry of its step. Where
 * nobody asks again a request that is refused, a stream that fails, is cut, or ends without its
 * terminal event makes the reply errored; one that is not read to its end, or is aborted, makes it
 * cancelled. An answer that is not streamed (`generateText`) is recorded as a whole, once it is there.
 *
 * What has to be sent back with a thought or a call is an event of kind `signature`, a part that is none of
 * these one of kind `unknown_block`.
 */

import { checkArguments } from "../encoding/argumentChecks.ts";
import type { Reply } from "../reply/reply.ts";
import type { AskedOf } from "./modelSaid.ts";
import { Recorder, isFailure } from "./recorder.ts";

type Reason = { unified?: string; raw?: string | undefined };
/** What of the SDK's parts is looked at. */
type Part = {
  type: string;
  id?: string;
  delta?: string;
  toolCallId?: string;
  toolName?: string;
  input?: string;
  result?: unknown;
  isError?: boolean;
  preliminary?: boolean;
  error?: unknown;
  finishReason?: Reason | string;
  usage?: unknown;
  output?: Output | null;
  providerMetadata?: unknown;
};
/** Parts that say nothing of what the model said. */
const SILENT: ReadonlySet<string> = new Set([
  "stream-start", "text-start", "text-end", "tool-input-end", "raw",
]);
/** Not among them: other, unknown, interrupted, which is what is said where a body was cut; and error. */
const ENDS: ReadonlySet<string> = new Set(["stop", "length", "content-filter", "tool-calls"]);

interface Params {
  prompt: readonly unknown[];
  abortSignal?: AbortSignal | undefined;
  tools?: unknown;
}
interface StreamResult {
  stream: ReadableStream<unknown>;
}
interface WholeResult {
  content: readonly unknown[];
  finishReason?: unknown;
  response?: unknown;
  usage?: unknown;
}
interface Output {
  type: string;
  value?: unknown;
  reason?: string;
}

export interface WalldMiddleware {
  readonly specificationVersion: "v4";
  wrapStream<T extends StreamResult>(options: {
    doStream: () => PromiseLike<T>;
    params: Params;
    model?: AskedOf["model"];
  }): Promise<T>;
  wrapGenerate<T extends WholeResult>(options: {
    doGenerate: () => PromiseLike<T>;
    params: Params;
    model?: AskedOf["model"];
  }): Promise<T>;
}

/**
 * Records every answer of the wrapped model in `reply`.
 *
 * continues: a request behind an answer that was cut goes on with it (it ends in the text so far, say): what
 * comes adds to that, instead of being another attempt at the step. TypeError for what is no boolean.
 */
export function walldMiddleware(reply: Reply, options: { continues?: boolean } = {}): WalldMiddleware {
  checkArguments(options, { continues: "bool" });
  const continues = options.continues === true;
  const recorder = Recorder.of(reply);
  return {
    specificationVersion: "v4",
    async wrapStream({ doStream, params, model }) {
      const [request, result] = await asked(recorder, params, model, doStream, continues);
      if (typeof result?.stream?.getReader !== "function") return result; // the SDK says what it thinks of it
      return withStream(result, tapped(result.stream, recorder, request));
    },
    async wrapGenerate({ doGenerate, params, model }) {
      const [request, result] = await asked(recorder, params, model, doGenerate, continues);
      if (recorder.isLatest(request)) recordWhole(recorder, result);
      else recorder.superseded();
      return result;
    },
  };
}

/** What a request gives, the request recorded; and its number. */
async function asked<T>(
  recorder: Recorder,
  params: Params | undefined,
  model: AskedOf["model"],
  ask: () => PromiseLike<T>,
  continues: boolean,
): Promise<[number, T]> {
  try {
    recordResults(recorder, params?.prompt);
  } catch (error) {
    recorder.missed(error); // no prompt of a kind that is known
  }
  const request = recorder.begin(params?.abortSignal, { model, tools: params?.tools }, continues);
  try {
    return [request, await ask()];
  } catch (error) {
    if (recorder.isLatest(request)) recorder.refused(error);
    throw error;
  }
}

/**
 * The same stream, each part recorded on its way.
 *
 * `pull` gives no promise and makes no function: that halves what this stream costs for a part. So
 * the stream cannot know that a part is on its way, and `isReading` says it: one is read at a time.
 */
function tapped(
  stream: ReadableStream<unknown>,
  recorder: Recorder,
  request: number,
): ReadableStream<unknown> {
  const reader = stream.getReader();
  let controller: ReadableStreamDefaultController<unknown>;
  let isReading = false;
  let isOver = false;
  const arrived = (next: { done: boolean; value?: unknown }): void => {
    if (isOver) return; // cancelled in the meantime
    if (next.done) {
      isOver = true;
      if (recorder.isLatest(request)) recorder.over();
      controller.close();
    } else {
      try {
        if (recorder.isLatest(request)) record(recorder, next.value as Part);
        else if ((next.value as Part | null)?.type === "finish") recorder.superseded();
      } catch (error) {
        recorder.missed(error); // no part of any kind that is known
      }
      isReading = false; // before enqueue, which pulls at once where somebody waits for the next part
      controller.enqueue(next.value);
    }
  };
  const failed = (error: unknown): void => {
    if (isOver) return;
    isOver = true;
    if (recorder.isLatest(request)) recorder.refused(error);
    controller.error(error); // the stream errors with this very object
  };
  return new ReadableStream<unknown>(
    {
      start(given) {
        controller = given;
      },
      pull() {
        if (isReading) return;
        isReading = true;
        reader.read().then(arrived, failed);
      },
      cancel(reason) {
        isOver = true;
        if (recorder.isLatest(request)) recorder.cancel("the stream was not read to its end");
        return reader.cancel(reason);
      },
    },
    { highWaterMark: 0 }, // read nothing that was not asked for
  );
}

function record(recorder: Recorder, part: Part): void {
  switch (part.type) {
    case "text-delta":
      recorder.text(part.delta!);
      break;
    case "reasoning-delta":
      if (part.delta !== "") recorder.reasoning(part.delta!);
      recorder.signed(part.providerMetadata);
      break;
    case "reasoning-start":
    case "reasoning-end":
      recorder.signed(part.providerMetadata);
      break;
    case "tool-input-start":
      recorder.toolStart(part.id!, part.toolName!);
      break;
    case "tool-input-delta":
      recorder.toolDelta(part.id!, part.delta!);
      break;
    case "tool-call":
      recorder.tool(part.toolCallId!, part.toolName!, part.input);
      recorder.signed(part.providerMetadata);
      break;
    case "tool-result": // of a tool that the provider runs
      if (part.preliminary === true) break;
      recorder.toolResult(part.toolCallId!, part.toolName, part.result, part.isError === true);
      break;
    case "response-metadata":
      recorder.answers(part as object);
      break;
    case "finish":
      recorder.used(part.usage);
      recorder.finish(reasonOf(part.finishReason));
      break;
    case "error":
      recorder.fail(part.error);
      break;
    default:
      if (typeof part.type === "string" && !SILENT.has(part.type)) recorder.beside("unknown_block", { block: part });
  }
}

/** An answer that came at once. It is whole, so any reason but `error` is its terminal marker. */
function recordWhole(recorder: Recorder, result: WholeResult): void {
  tell(recorder, () => recorder.answers(result.response as object));
  each(recorder, () => result.content, (part: Part & { text?: string }) => {
    if (part.type === "text") recorder.text(part.text!);
    else if (part.type === "reasoning") {
      recorder.reasoning(part.text!);
      recorder.signed(part.providerMetadata);
    } else record(recorder, part);
  });
  tell(recorder, () => recorder.used(result.usage));
  let reason: Reason = {};
  try {
    reason = (result?.finishReason ?? {}) as Reason;
    reason = { raw: reason.raw, unified: reason.unified! };
  } catch (error) {
    recorder.missed(error); // it came whole all the same
  }
  recorder.finish(failureOf(reason) ?? reason.raw ?? reason.unified ?? "unknown");
  recorder.over();
}

/** What cannot be read is missed, and nothing else. */
function tell(recorder: Recorder, say: () => void): void {
  try {
    say();
  } catch (error) {
    recorder.missed(error);
  }
}

/** Each part by itself: one of no kind that is known keeps nothing behind it out. */
function each<T>(recorder: Recorder, parts: () => unknown, say: (part: T) => void): void {
  try {
    for (const part of parts() as Iterable<T>) {
      try {
        say(part);
      } catch (error) {
        recorder.missed(error);
      }
    }
  } catch (error) {
    recorder.missed(error); // nothing that has parts
  }
}

/** `result` with another stream, all else as the provider made it: its getters and its class. */
function withStream<T extends StreamResult>(result: T, stream: ReadableStream<unknown>): T {
  const own = { value: stream, writable: true, enumerable: true, configurable: true };
  const kind: unknown = Object.getPrototypeOf(result);
  const isPlain = kind === Object.prototype || kind === null;
  // Of an instance no copy has the private fields: it is the instance that gets the stream.
  if (!isPlain && Reflect.defineProperty(result, "stream", own)) return result;
  const fields = { ...Object.getOwnPropertyDescriptors(result), stream: own };
  return Object.create(kind as object | null, fields) as T;
}

/**
 * The provider's own reason, else the end of its own that the SDK names: the OpenAI Responses wire
 * gives no reason where all is well. null: what is named is no end of a model's, so none came.
 */
function reasonOf(reason: Part["finishReason"]): string | null {
  const { unified = "", raw } = typeof reason === "string" ? { unified: reason } : (reason ?? {});
  return failureOf({ unified, raw }) ?? raw ?? (ENDS.has(unified) ? unified : null);
}

/** By the provider's word, for which the SDK may have `other`, or by the SDK's for one of another name. */
function failureOf({ unified, raw }: Reason): string | undefined {
  return isFailure(raw) ? raw : unified === "error" ? unified : undefined;
}

/**
 * Results of the program's own tools: the next request tells the model of them, behind the answer
 * that asked for them. What stands before the last answer of a prompt was told before, and may be of
 * other calls with the same ids.
 */
function recordResults(recorder: Recorder, prompt: unknown): void {
  if (!Array.isArray(prompt)) return;
  const counts = new Map<string, number>();
  let behind: Part[] = [];
  each(recorder, () => prompt, (message: { role?: string; content?: unknown } | null | undefined) => {
    if (message?.role === "assistant") behind = [];
    if (message?.role !== "tool" || !Array.isArray(message.content)) return;
    const parts = message.content;
    each(recorder, () => parts, (part: Part | null | undefined) => {
      if (part?.type !== "tool-result" || !part.output) return;
      counts.set(part.toolCallId!, (counts.get(part.toolCallId!) ?? 0) + 1);
      behind.push(part);
    });
  });
  const isNew = recorder.resultsAsked(counts);
  each(recorder, () => behind, ({ toolCallId, toolName, output }: Part) => {
    if (!isNew(toolCallId!)) return;
    const { type, value, reason } = output!;
    const failed = String(type).startsWith("error") || type === "execution-denied";
    recorder.toolResultAsked(toolCallId!, toolName, value ?? reason, failed);
  });
}

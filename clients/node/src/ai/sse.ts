/**
 * A sink for the `ai` package's UI message streams: records in a reply what is sent to a browser.
 *
 *     return result.toUIMessageStreamResponse({ consumeSseStream: walldSseSink(reply) });
 *
 * Owns: reading the copy of the stream that the SDK makes, at the pace at which it comes: so the run
 * goes on where the browser has left, which is what the SDK's option is for; recording each chunk before
 * the browser's half has it. Refuses: throwing into
 * the SDK; ending the reply where all is well. Use it or the middleware, not both: each records all.
 */

import type { Reply } from "../reply/reply.ts";
import { Recorder } from "./recorder.ts";

/** What of the SDK's chunks is looked at. */
type Chunk = {
  type: string;
  delta?: string;
  toolCallId?: string;
  toolName?: string;
  inputTextDelta?: string;
  input?: unknown;
  output?: unknown;
  preliminary?: boolean;
  errorText?: string;
  finishReason?: string;
  reason?: string;
  providerMetadata?: unknown;
};

/** Chunks that say nothing of what the model said; and `data-...`, which are the program's own. */
const SILENT: ReadonlySet<string> = new Set([
  "start", "text-start", "text-end", "message-metadata",
]);

/** What the sink knows of the run that it is shown. */
interface Run {
  readonly recorder: Recorder;
  /** The recorder's number for the step under way. */
  request: number;
}

/**
 * Ends that the SDK writes where the provider said none. Not among them: other, an end in words that
 * the SDK has no name for. A provider that says none at all may be called so too; the middleware can
 * tell, for it sees the provider's own word.
 */
const NO_MARKER = ["interrupted", "unknown"];

/** For `consumeSseStream`: resolves when the stream is over. */
export function walldSseSink(
  reply: Reply,
): (options: { stream: ReadableStream<string> }) => Promise<void> {
  return async ({ stream }) => {
    const recorder = Recorder.of(reply);
    const run: Run = { recorder, request: recorder.latest };
    let rest = "";
    const write = (piece: string): void => {
      const events = (rest + piece).split("\n\n");
      rest = events.pop()!;
      for (const event of events) recordEvent(run, event);
    };
    try {
      // A pipe, as the body is behind the copy's other half: so a chunk is recorded before the body has
      // it. On Node 20 a reader or an iterator has it later than the body.
      await stream.pipeTo(new WritableStream({ write }, { highWaterMark: Infinity }));
      if (recorder.isLatest(run.request)) recorder.over();
    } catch (error) {
      if (recorder.isLatest(run.request)) recorder.refused(error);
    }
  };
}

function recordEvent(run: Run, event: string): void {
  const text = event
    .split("\n")
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5).trimStart())
    .join("\n");
  if (text === "" || text === "[DONE]") return;
  let chunk: Chunk | null;
  try {
    chunk = JSON.parse(text) as Chunk | null;
  } catch {
    return; // no chunk of the SDK's
  }
  if (chunk === null) return;
  if (chunk.type === "start-step") run.request = run.recorder.begin();
  else if (run.recorder.isLatest(run.request)) record(run.recorder, chunk);
  else if (chunk.type === "finish") run.recorder.superseded();
}

function record(recorder: Recorder, chunk: Chunk): void {
  switch (chunk.type) {
    case "text-delta":
      recorder.text(chunk.delta!);
      break;
    case "reasoning-delta":
      if (chunk.delta !== "") recorder.reasoning(chunk.delta!);
      recorder.signed(chunk.providerMetadata);
      break;
    case "reasoning-start":
    case "reasoning-end":
      recorder.signed(chunk.providerMetadata);
      break;
    case "tool-input-start":
      recorder.toolStart(chunk.toolCallId!, chunk.toolName!);
      break;
    case "tool-input-delta":
      recorder.toolDelta(chunk.toolCallId!, chunk.inputTextDelta!);
      break;
    case "tool-input-available":
    case "tool-input-error":
      recorder.tool(chunk.toolCallId!, chunk.toolName!, chunk.input);
      recorder.signed(chunk.providerMetadata);
      break;
    case "tool-output-available":
      if (chunk.preliminary === true) break;
      recorder.toolResult(chunk.toolCallId!, undefined, chunk.output, false);
      break;
    case "tool-output-error":
      recorder.toolResult(chunk.toolCallId!, undefined, chunk.errorText, true);
      break;
    case "tool-output-denied":
      recorder.toolResult(chunk.toolCallId!, undefined, "denied", true);
      break;
    case "finish-step":
      recorder.stepOver();
      break;
    case "finish":
      recorder.finish(endOf(chunk.finishReason));
      break;
    case "error":
      recorder.fail(new Error(chunk.errorText));
      break;
    case "abort":
      recorder.fail(new DOMException(chunk.reason ?? "aborted", "AbortError"));
      break;
    default:
      if (typeof chunk.type !== "string" || SILENT.has(chunk.type) || chunk.type.startsWith("data-")) break;
      recorder.beside("unknown_block", { block: chunk });
  }
}

/** The stream has the SDK's word alone, never the provider's. */
function endOf(reason: string | undefined): string | null {
  return reason === undefined || NO_MARKER.includes(reason) ? null : reason;
}

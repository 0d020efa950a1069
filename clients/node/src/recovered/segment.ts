/**
 * One piece of a recovered reply, and how it is read from the wire.
 *
 * Owns: `Segment` and `Gap`. Refuses: what a reply is (`partialReply.ts`), messages
 * (`providerMessages.ts`).
 */

import * as values from "../encoding/valueEncoding.ts";
import * as wtf8 from "../encoding/wtf8.ts";
import type { WireSegment } from "../wire/messages.ts";

/** Seqs that are missing, both included. verdict: dropped | torn | corrupt | unknown. */
export interface Gap {
  firstSeq: number;
  lastSeq: number;
  verdict: string;
}

/**
 * One piece of a reply, in order.
 *
 * kind: text | reasoning | tool | tool_result (of no known call) | custom | gap. step, attempt: from
 * 0. lastSeq: of the last event that touched it. text: of text and reasoning. A tool has callId,
 * name, arguments (JSON text so far), argumentsComplete, outcome (done | failed | unknown: without a
 * result never taken as done) and result (text, or what the JSON says). custom: name is the
 * application's kind, result its payload. gap: verdict. truncated: true length in bytes where the
 * client cut arguments, result or payload, else 0. info: what the application said beside it; of a
 * tool that was told none, beside its result. resultInfo: of a tool, what was said beside its result.
 */
export interface Segment {
  kind: string;
  step: number;
  attempt: number;
  firstSeq: number;
  lastSeq: number;
  at: Date;
  text: string;
  callId: string | null;
  name: string | null;
  arguments: string | null;
  argumentsComplete: boolean;
  result: unknown;
  outcome: string | null;
  truncated: number;
  info: unknown;
  verdict: string | null;
  resultInfo: unknown;
}

/** As the daemon sent it, in plain objects. */
export function segmentOf(wire: WireSegment): Segment {
  return {
    kind: wire.kind,
    step: wire.step,
    attempt: wire.attempt,
    firstSeq: wire.first_seq,
    lastSeq: wire.last_seq,
    at: new Date(wire.at_ms),
    text: wtf8.decode(wire.text),
    callId: wire.call_id,
    name: wire.name,
    arguments: wire.arguments && wtf8.decode(wire.arguments),
    argumentsComplete: wire.arguments_complete,
    result: resultOf(wire),
    outcome: wire.outcome,
    truncated: wire.truncated_from,
    info: values.unpacked(wire.info),
    verdict: wire.verdict,
    resultInfo: values.unpacked(wire.result_info),
  };
}

function resultOf(wire: WireSegment): unknown {
  if (wire.result === null) return null;
  if (wire.kind === "custom") return values.unpacked(wire.result);
  const text = wtf8.decode(wire.result);
  if (!wire.result_json) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text; // cut by the client: what is there, as text
  }
}

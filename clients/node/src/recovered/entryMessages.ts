/**
 * A reply's messages as the entries of its session have them.
 *
 * Owns: what an entry says of a call beside what the model sees, whether a reply came to its end. Refuses: the
 * messages themselves (`partialReply.ts`), appending them.
 */

import type { PartialReply, PlainMessage } from "./partialReply.ts";

/** What the account of a call reads of what its program said beside it. */
const OF_INFO = ["server", "side_effect", "resume_policy", "idempotency", "key"];
/** Why a reply may be partial behind whose last word the provider said that its message ended. */
const SAID_WHOLE: readonly (string | null)[] = [null, "provider_paused", "answer_missing"];
/** Of a reply whose text, or last step, reads as whole. */
const CUT = { _partial: true, _partial_reason: "end_missing" } as const;

/**
 * Plain messages, one a step: each call says by which seq it began, how many characters of its message's text stand
 * before it (`at`), and what its program said of its risk.
 */
export function entryMessages(reply: PartialReply): PlainMessage[] {
  const last = reply.segments.filter((one) => one.attempt === reply.attempts - 1);
  const messages = reply.messages();
  for (const message of messages) {
    const first = last.find((one) => one.firstSeq === message._wal_seq);
    const calls = [...(message.tool_calls ?? [])];
    let said = "";
    for (const segment of last.filter((one) => one.step === first?.step)) {
      if (segment.kind === "text") said += segment.text;
      if (segment.kind !== "tool") continue;
      const call = calls.shift()!;
      Object.assign(call, { seq: segment.firstSeq, at: Array.from(said).length });
      const info = segment.info as Record<string, unknown> | null;
      if (typeof info !== "object" || info === null || Array.isArray(info)) continue;
      for (const name of OF_INFO) if (Object.hasOwn(info, name)) call[name] = info[name];
    }
  }
  return messages;
}

/** The same of one that nobody will go on with: the last of a reply that was cut says so. */
export function adoptedMessages(reply: PartialReply): PlainMessage[] {
  const messages = entryMessages(reply);
  const last = messages.pop();
  if (last === undefined) return [];
  return [...messages, hasEnded(reply) ? last : { ...CUT, ...last }];
}

/** Its program or its provider said that it is whole. That its text ends in a sentence does not. */
function hasEnded(reply: PartialReply): boolean {
  return reply.status === "complete" || (reply.finishReason !== null && SAID_WHOLE.includes(reply.partialReason));
}

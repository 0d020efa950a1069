/**
 * Builds the first frames of a connection. Owns: Hello, and a Resume for each stream that is still open.
 * Refuses: when they are sent (`link.ts`).
 */

import { PROTOCOL_VERSION, encodeFrame } from "../wire/framing.ts";
import { CLIENT_NAME, PRODUCER } from "./producer.ts";
import type { Stream } from "./stream.ts";

/** An agent's Hello, which attests the last Ack: the daemon audits its own disk with it. */
export function helloFrame(log: Uint8Array, syncedNo: number): Buffer {
  return encodeFrame("Hello", {
    version: PROTOCOL_VERSION,
    role: "agent",
    producer: PRODUCER,
    log,
    synced_no: syncedNo,
    client: CLIENT_NAME,
  });
}

/** What of the connection before is still open: streams of which a Start was sent. */
export function resumeFrames(streams: Iterable<Stream>): Buffer[] {
  const frames: Buffer[] = [];
  for (const stream of streams) {
    if (!stream.introduced || stream.gone) continue;
    const resume = {
      start: { stream: stream.number, seq: 0, ...stream.start },
      held_from: stream.heldFrom,
      synced: stream.attested,
      next_seq: stream.nextSeq,
      released: stream.released,
      moved_to: stream.movedTo,
    };
    frames.push(encodeFrame("Resume", resume));
  }
  return frames;
}

/**
 * The producer id of this thread, and the numbers of its streams.
 *
 * Owns: both. Refuses: links. Each worker thread loads this module for itself, so it is a producer of
 * its own with a connection of its own; the daemon sees the process alive as long as any of them.
 */

import { randomBytes } from "node:crypto";

export const VERSION = "0.2.0-dev.0";
/** What Hello carries, for the daemon's log. */
export const CLIENT_NAME = `walld-client-node ${VERSION}`;

/** 16 random bytes that name this thread to the daemon. */
export const PRODUCER: Buffer = randomBytes(16);

let numbers = 0;

/** Dense from 1 and never used again, whatever the link. */
export function nextStreamNumber(): number {
  numbers += 1;
  return numbers;
}

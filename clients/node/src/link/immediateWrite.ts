/**
 * Writes a frame to the kernel at once, past Node's socket, and tells how many bytes it took.
 *
 * Owns: write(2) on a connection's descriptor. Refuses: the bytes that the kernel does not take, and why
 * (the socket is given them, and finds out by itself); opening and closing.
 *
 * Why past Node's socket: between the tokens of a model the caches get cold, and then the socket's own
 * work for a write costs more than write(2) does. Node names the descriptor in no page of its
 * documentation: where it does not tell it nothing is taken here, and the socket writes everything.
 *
 * And why a Hello: a socket whose write fails is destroyed, with all that was not read of it yet. A daemon
 * that lets a process not in says why and is gone before the Hello comes.
 */

import { writeSync } from "node:fs";
import type { Socket } from "node:net";

import type { Held } from "./eventFrames.ts";

/** No descriptor. */
export const NONE = -1;

/** The descriptor of a socket that is connected. It is the kernel's until `socket.destroyed`. */
export function descriptorOf(socket: Socket): number {
  const { _handle } = socket as { _handle?: { fd?: unknown } | null };
  return typeof _handle?.fd === "number" ? _handle.fd : NONE;
}

/** How many bytes of a frame the kernel has taken. Never waits: Node's sockets do not block. */
export function writeNow(descriptor: number, { memory, at, length }: Held): number {
  try {
    return writeSync(descriptor, memory, at, length);
  } catch {
    return 0;
  }
}

/**
 * How many bytes of a connection's first frame; -1 where nobody is there any more to take it: what they
 * said before that is read next.
 */
export function writeFirst(socket: Socket, frame: Buffer): number {
  try {
    return writeSync(descriptorOf(socket), frame);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPIPE" ? -1 : 0;
  }
}

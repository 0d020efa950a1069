/**
 * Keeps the links of this thread, one a socket path, however often a program connects.
 *
 * Owns: which client uses which link, and the flush when the program ends by itself. Refuses: the links'
 * insides.
 *
 * A link keeps no program alive. So when the event loop has run empty and something still waits for
 * the kernel, it is held open for that, at most CLOSE_MS. process.exit() asks nobody: then a reply that
 * failed still says so, as far as the kernel takes it at once.
 */

import { CLOSE_MS } from "../limits.ts";
import { Link } from "./link.ts";
import { findSocket } from "./socketPath.ts";

interface Shared {
  readonly link: Link;
  users: number;
  /** Events that were waited for when the event loop ran empty. */
  eventsWaitedFor: number;
}

const links = new Map<string, Shared>();
let isHooked = false;

/** The link to `socket` (undefined: wherever it is found). The first who joins sets its bound. */
export function join(socket: string | undefined, backlogBytesMax: number): Link {
  const key = socket ?? "";
  let shared = links.get(key);
  if (shared === undefined) {
    shared = { link: new Link(() => findSocket(socket), backlogBytesMax), users: 0, eventsWaitedFor: 0 };
    links.set(key, shared);
  }
  if (!isHooked) {
    isHooked = true;
    process.on("beforeExit", flushBeforeExit);
    process.once("exit", failAll);
  }
  shared.users += 1;
  return shared.link;
}

/**
 * Comes again where anything has gone on behind it: the wait itself, or a program that says more then. What
 * was waited for once is not again: a daemon that takes nothing would hold the program for ever.
 */
function flushBeforeExit(): void {
  failAll();
  for (const shared of links.values()) {
    const { events } = shared.link.registry;
    if (events === shared.eventsWaitedFor) continue;
    shared.eventsWaitedFor = events;
    void shared.link
      .flush(CLOSE_MS)
      .then((isTaken) => (isTaken ? shared.link.hearWhetherBegun(CLOSE_MS) : undefined));
  }
}

function failAll(): void {
  for (const { link } of links.values()) link.failAll();
}

/** Nobody but one client uses it. */
export function isLast(link: Link): boolean {
  return [...links.values()].some((shared) => shared.link === link && shared.users === 1);
}

/** A client is done with it. True for the last one, who must shut it. */
export function leave(link: Link): boolean {
  for (const [key, shared] of links) {
    if (shared.link !== link) continue;
    shared.users -= 1;
    if (shared.users > 0) return false;
    links.delete(key);
    return true;
  }
  return false;
}

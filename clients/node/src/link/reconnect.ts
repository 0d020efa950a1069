/**
 * Decides where and when a link connects, and warns once when no daemon can be reached.
 *
 * Owns: the attempts of one link, their backoff, and the one line for the first event that cannot be
 * delivered: a process warning, which Node prints on stderr and `process.on("warning")` receives.
 * Refuses: sockets, timers.
 */

import { debuglog } from "node:util";

import { BACKOFF_MS_MAX, BACKOFF_MS_MIN } from "../limits.ts";
import { checkWay } from "./socketPath.ts";
import { warn } from "./warnings.ts";

const log = debuglog("walld");

export class Reconnect {
  /** Of the latest attempt. */
  path = "";
  /** Attempts that succeeded. */
  connections = 0;
  private readonly locate: () => string;
  private readonly backlogBytesMax: number;
  private attempts = 0;
  private retryAt = 0;
  private told = false;

  constructor(locate: () => string, backlogBytesMax: number) {
    this.locate = locate;
    this.backlogBytesMax = backlogBytesMax;
  }

  /** The path to try now. Throws where there is none to be trusted. */
  next(): string {
    this.path = this.locate();
    checkWay(this.path);
    return this.path;
  }

  /** How long the next attempt must wait, ms. */
  get waitMs(): number {
    return Math.max(0, this.retryAt - performance.now());
  }

  /** Somebody waits for what is held, and a daemon is there: try now, and soon again. */
  hurry(): void {
    this.attempts = 0;
    this.retryAt = 0;
  }

  /** The next attempt later: twice as long each time, with jitter, within bounds. */
  backOff(msMin = 0): void {
    const step = Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** Math.min(this.attempts, 10));
    this.attempts += 1;
    this.retryAt = performance.now() + Math.max(step * (0.5 + Math.random() / 2), msMin);
  }

  /** A daemon answered: the next outage starts from the shortest wait, with its own line. */
  welcomed(): void {
    this.attempts = 0;
    if (this.told) {
      this.told = false;
      log("walld at %s takes events again", this.path);
    }
  }

  /** One line for the first event that cannot be delivered, none after it until it can. */
  tell(what: string): void {
    if (this.told) return;
    this.told = true;
    warn(
      `walld at ${this.path || "(no socket)"}: ${what}; uid ${process.geteuid?.()}, ` +
        `up to ${this.backlogBytesMax} bytes of events wait in memory for it`,
    );
  }
}

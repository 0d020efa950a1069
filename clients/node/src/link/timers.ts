/**
 * Timers for time limits of any length. Owns: the clamp to what Node can wait. Refuses: what the limit is.
 *
 * Node takes a wait that does not fit its 31 bits (25 days) for one of 1 ms: a limit that says "as long as
 * it takes" would be none at all.
 */

const TIMER_MS_MAX = 2 ** 31 - 1;

/** Run it then; at once where that is over. */
export function after(ms: number, run: () => void): NodeJS.Timeout {
  return setTimeout(run, Math.min(Math.max(0, ms), TIMER_MS_MAX));
}

/** What `awaited` comes to; `late` where that takes longer. */
export function within<T>(ms: number, awaited: Promise<T>, late: T): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = after(ms, () => resolve(late));
    awaited.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

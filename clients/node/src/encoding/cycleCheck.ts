/**
 * Values that contain themselves: what was met on the way through one.
 *
 * Owns: which parts of a value are taken apart, and how often. Refuses: what becomes of them.
 *
 * What comes twice is sent twice, as JSON.stringify does. But a value with a loop has no end, and cut at some
 * depth it is still 2 ** depth parts where it comes back in two ways, as nodes do that name their parent: the
 * call would never return. So of such a value each part is taken apart once.
 */

/** A part stands within itself. */
export class Looped extends Error {}

/** The parts that lead to the one at hand; once: all that were met. */
export class Trail {
  private readonly met = new Set<object>();
  private readonly once: boolean;

  constructor(once: boolean) {
    this.once = once;
  }

  /** Is it to be taken apart? Then `leaves` follows. Throws Looped. */
  enters(value: object): boolean {
    const isNew = !this.met.has(value);
    if (!isNew && !this.once) throw new Looped();
    this.met.add(value);
    return isNew;
  }

  /** It is taken apart. */
  leaves(value: object): void {
    if (!this.once) this.met.delete(value);
  }
}

/** What `take` makes of a value, whether that has a loop or not. */
export function takenApart<T>(take: (trail: Trail) => T): T {
  try {
    return take(new Trail(false));
  } catch (error) {
    if (!(error instanceof Looped)) throw error;
  }
  return take(new Trail(true));
}

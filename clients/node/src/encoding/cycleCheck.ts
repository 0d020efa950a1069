/**
 * Detects values that contain themselves, so that walking one ends.
 *
 * Owns: which parts of a value are walked, and how often. Refuses: what becomes of them.
 *
 * A part that occurs twice is sent twice, as JSON.stringify does. But a value with a cycle has no end, and
 * cut at some depth it still has 2 ** depth parts where it comes back in two ways, as nodes do that name
 * their parent: the call would never return. So in a value with a cycle each part is walked once.
 */

/** A part of the value contains itself. */
export class CycleFound extends Error {}

/** The parts that lead to the one at hand; once: all that were met. */
export class Trail {
  private readonly met = new Set<object>();
  private readonly once: boolean;

  constructor(once: boolean) {
    this.once = once;
  }

  /** Is it to be taken apart? Then `leaves` follows. Throws CycleFound. */
  enters(value: object): boolean {
    const isNew = !this.met.has(value);
    if (!isNew && !this.once) throw new CycleFound();
    this.met.add(value);
    return isNew;
  }

  /** It is taken apart. */
  leaves(value: object): void {
    if (!this.once) this.met.delete(value);
  }
}

/** What `take` makes of a value, whether that has a cycle or not. */
export function withoutCycles<T>(take: (trail: Trail) => T): T {
  try {
    return take(new Trail(false));
  } catch (error) {
    if (!(error instanceof CycleFound)) throw error;
  }
  return take(new Trail(true));
}

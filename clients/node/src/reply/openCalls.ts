/**
 * Keeps the tool calls of a reply that have no result yet.
 *
 * Owns: which call a result belongs to, without an id or by the id that a provider gave to several; by which
 * seq a call began, as whoever reads the reply counts (an id that is said anew behind a step, the provider's finish,
 * its call's result or a retry is another call). Refuses: sending.
 */

import { OPEN_TOOLS_MAX } from "../limits.ts";

export class OpenCalls {
  private readonly names = new Map<string, string>();
  /** The provider's ids of calls that are called otherwise here. */
  private readonly given = new Map<string, string>();
  /** Call id to the seq and the step in which it began; of calls with a result, too. */
  private begun = new Map<string, { seq: number; step: number }>();
  private step = 0;
  /** Those said before the finish of the step under way. */
  private readonly finished = new Set<string>();

  /**
   * A call began, or was updated. Beyond OPEN_TOOLS_MAX the oldest is forgotten.
   *
   * given: its provider's id, if that is another one.
   */
  add(callId: string, name: string, seq: number, given?: unknown): void {
    const begun = this.begun.get(callId);
    const isOver = !this.names.has(callId) || this.finished.has(callId);
    if (begun === undefined || isOver || begun.step !== this.step) {
      for (const known of [this.begun, this.names, this.finished]) known.delete(callId);
      this.begun.set(callId, { seq, step: this.step });
      if (this.begun.size > OPEN_TOOLS_MAX) this.begun.delete(this.begun.keys().next().value!);
    }
    this.names.set(callId, name);
    if (typeof given === "string") this.given.set(callId, given);
    if (this.names.size <= OPEN_TOOLS_MAX) return;
    for (const oldest of this.names.keys()) {
      this.close(oldest);
      return;
    }
  }

  /** What is said from here on is of the next message. */
  nextStep(): void {
    this.step += 1;
    this.finished.clear();
  }

  /** The provider's answer is over. */
  finish(): void {
    for (const callId of this.names.keys()) this.finished.add(callId);
  }

  /** All calls so far, or those of the step alone, are of an attempt that is over. */
  retry(isOfStep: boolean): void {
    this.begun = new Map([...this.begun].filter(([, one]) => isOfStep && one.step < this.step));
  }

  /** The seq by which the newest call of that id began; undefined where none is known. */
  begunAt(callId: string): number | undefined {
    return this.begun.get(callId)?.seq;
  }

  /** The call that a result by this id is of: of several the first, of that name if one is. */
  byId(callId: string, name: string | undefined): string {
    if (this.given.size === 0 || ![...this.given.values()].includes(callId)) return callId;
    const calls = [...this.names].filter(([one]) => one === callId || this.given.get(one) === callId);
    return (calls.find(([, one]) => one === name) ?? calls[0]!)[0];
  }

  /** The newest call of that name; without a name the one open call, if it is one. */
  find(name: string | undefined): string | undefined {
    const calls = [...this.names].filter(([, one]) => name === undefined || one === name);
    return name === undefined && calls.length !== 1 ? undefined : calls.at(-1)?.[0];
  }

  /** It has its result; the name it was begun with. */
  close(callId: string | undefined): string | undefined {
    if (callId === undefined) return undefined;
    const name = this.names.get(callId);
    this.names.delete(callId);
    this.given.delete(callId);
    this.finished.delete(callId);
    return name;
  }
}

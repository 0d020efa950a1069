/**
 * Gives each tool call of a reply an id of its own, where a provider uses one id for several calls.
 *
 * Owns: the ids of the calls, and to which of several calls with one provider's id a piece or a result
 * belongs. Sans-IO. Refuses: recording them (`recorder.ts`).
 *
 * A provider's id is a call's name as long as no other call of the answer has it; the next one is
 * `<id>#2`. The SDK names its parts by that id alone: a piece of arguments is of the newest call of
 * its id, a whole call and a result are of the first that has none yet; a result of that tool's, if
 * one is.
 */

interface Call {
  readonly name: string;
  readonly given: string;
  readonly tool: string;
  /** Its arguments so far, as they were streamed; undefined: it came whole. */
  streamed: string | undefined;
  isWhole: boolean;
}

export class CallNames {
  /** Of the latest answer, by id. */
  private readonly latest = new Map<string, Call[]>();
  private readonly taken = new Set<string>();
  /** Without a result, of all answers, in order. */
  private readonly open = new Set<Call>();

  /** Another answer begins: an id may come again, and then nothing of it was said. */
  answerBegins(): void {
    this.latest.clear();
    this.taken.clear();
  }

  /** A call of this id begins. */
  begin(given: string, tool: string, streamed?: string): Call {
    let calls = this.latest.get(given);
    if (calls === undefined) this.latest.set(given, (calls = []));
    let times = calls.length + 1;
    let name = times === 1 ? given : `${given}#${times}`;
    while (this.taken.has(name)) name = `${given}#${(times += 1)}`;
    this.taken.add(name);
    const call = { name, given, tool, streamed, isWhole: streamed === undefined };
    calls.push(call);
    for (const one of this.open) {
      // Of an answer before: a result by this name is the newer one's.
      if (one.name === name) this.open.delete(one);
    }
    this.open.add(call);
    return call;
  }

  /** How many calls of the latest answer have this id. */
  count(given: string): number {
    return this.latest.get(given)?.length ?? 0;
  }

  /** The call that a piece of arguments is of. */
  ofPiece(given: string): Call | undefined {
    return this.latest.get(given)?.at(-1);
  }

  /** The call that came in pieces and is told as a whole now. */
  ofWhole(given: string): Call | undefined {
    const call = this.latest.get(given)?.find((one) => !one.isWhole);
    if (call !== undefined) call.isWhole = true;
    return call;
  }

  /** The call that a result is of, which has it then. */
  ofResult(given: string, tool: string | undefined): Call | undefined {
    const calls = [...this.open].filter((one) => one.given === given);
    const call = calls.find((one) => one.tool === tool) ?? calls[0];
    if (call !== undefined) this.open.delete(call);
    return call;
  }
}

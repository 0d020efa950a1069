/**
 * Claims the newest turn of a session: the gate, and behind its ok a new turn that goes on with it.
 *
 * Owns: the order of judging and claiming, by compare-and-set: what was judged is so when the turn stands in the log,
 * or is judged anew. Of several that resume at once one wins, since the others' log has moved on then. A claim whose
 * answer was lost may stand there: that is looked for before anything else is said of it. Refuses: judging.
 */

import { setTimeout as sleep } from "node:timers/promises";

import { checkArgument } from "../encoding/argumentChecks.ts";
import { newEntryId } from "../encoding/ids.ts";
import * as values from "../encoding/valueEncoding.ts";
import { Blocked, NotDurable, Refused, Unavailable } from "../errors.ts";
import { BACKOFF_MS_MIN, SUBMIT_MS } from "../limits.ts";
import type { Fields } from "../wire/codec.ts";
import { takeResult } from "./childResult.ts";
import type { ResumeOptions } from "./entries.ts";
import { asEntry, draft, type Draft, type SessionLog, type TurnFacts } from "./log.ts";
import { ofCall, oneCall, resumeCheck, type Gate, type GateCall } from "./settling.ts";
import { findTurn, lineOf, submittedAs } from "./submitting.ts";
import type { Facts } from "./turn.ts";

interface State {
  last_seq: number;
  turns: TurnFacts[];
}

/** Of the message of the turn that is gone on with, byte for byte. */
const KEPT = ["message_id", "content", "attachments", "model", "calls", "meta"];

export async function resume(session: SessionLog, options: ResumeOptions): Promise<Facts> {
  for (const word of Object.values(options.checked ?? {})) checkArgument(word, "checked", ["ran", "did_not_run"]);
  const began = performance.now();
  const until = began + (options.timeoutMs ?? SUBMIT_MS);
  const claim = new Claim(session.by(until), options, until);
  try {
    return await claim.made();
  } catch (error) {
    if (!(error instanceof Unavailable) || claim.sent === undefined) throw error;
    const waitedMs = Math.round(performance.now() - began);
    throw new NotDurable(session.sessionId, claim.turnId, claim.messageId, waitedMs, error, "claim");
  }
}

/** One claim, from its first judgement on. */
class Claim {
  /** Of the turn that it would be. */
  turnId = newEntryId();
  messageId = "";
  /** As it was sent; it may stand in the log. */
  sent: Fields | undefined;
  private readonly session: SessionLog;
  private readonly options: ResumeOptions;
  private readonly until: number;
  private checked: Record<string, string>;
  /** The turn that it goes on with, and no other, once that was judged. */
  private named: string | undefined;
  private calls: GateCall[] = [];

  constructor(session: SessionLog, options: ResumeOptions, until: number) {
    this.session = session;
    this.options = options;
    this.until = until;
    this.checked = { ...options.checked };
  }

  async made(): Promise<Facts> {
    for (;;) {
      try {
        await this.tried();
      } catch (error) {
        if (!(error instanceof Refused) && !(error instanceof Unavailable)) throw error;
        if (this.sent === undefined || !(await this.isTaken(this.sent))) {
          const isStale = error instanceof Refused && error.code === "stale";
          if (!isStale && (error instanceof Refused || this.sent === undefined)) throw error;
          await this.pause(error);
          continue;
        }
      }
      const turn = await findTurn(this.session, { turnId: this.turnId });
      return { ...turn, calls: this.calls };
    }
  }

  /** One try. The turn that this process has claimed and not ended is that of this claim, too. */
  private async tried(): Promise<void> {
    const { session } = this;
    let judged = await this.gate();
    const untold = judged[1].calls.filter(isUntold);
    for (const one of untold) await takeResult(session, one.child!, ofCall(one));
    if (untold.length > 0) judged = await this.gate();
    const [expectedSeq, gate, newest] = judged;
    const first = await submittedAs(session, newest.turn_id);
    this.messageId = first["message_id"] as string;
    if (gate.own_turns?.includes(newest.turn_id) && "claim" in first) {
      // What is not open any more was said with the claim, or since.
      const still = gate.calls.map((one) => one.call_id);
      this.checked = Object.fromEntries(Object.entries(this.checked).filter(([name]) => still.includes(name)));
      const made = await session.made(this.settled(gate));
      // Before the claim counts as sent: what is stale is judged anew, not passed over.
      if (made.length > 0) await session.place(made, { synced: true, expectedSeq });
      this.turnId = newest.turn_id;
      this.sent = submission(this.turnId, first);
      await session.place([this.sent], { synced: true }); // it is there: that it is durable
      return;
    }
    const drafts = this.settled(gate);
    if (newest.state !== "interrupted") {
      // Its owner is gone, or asks.
      drafts.push(draft("turn_interrupted", { reason: "resumed" }, { turn: newest.turn_id }));
    }
    const made = await session.made(drafts);
    const kept = Object.fromEntries(KEPT.filter((name) => name in first).map((name) => [name, first[name]]));
    this.sent = submission(this.turnId, { ...kept, retry_of: newest.turn_id, claim: { as_of: gate.as_of } });
    await session.place([...made, this.sent], { synced: true, expectedSeq });
  }

  /** The seq that it is judged at, the gate's word, the newest turn. Throws Refused, Blocked. */
  private async gate(): Promise<[number, Gate, TurnFacts]> {
    const state = (await this.session.project("state")) as State | null;
    // With a policy, if an empty one: an older daemon, whose gate has no owners, is Unsupported.
    const gate = await resumeCheck(this.session, { ...this.options, policy: this.options.policy ?? {} });
    const turn = state?.turns.at(-1);
    if (state === null || gate === null || turn === undefined) {
      throw new Refused("nothing_to_resume", "no turn", "a turn that was not completed");
    }
    const owner = gate.owner ?? null;
    const newest = turn.turn_id;
    const isWorkedOn = owner !== null && owner.turn === newest;
    if ((this.named !== undefined && this.named !== newest) || (isWorkedOn && turn.retry_of)) {
      const who = await claimedBy(this.session, turn, isWorkedOn ? owner : null);
      throw new Refused("already_resumed", who, `${this.named ?? turn.retry_of} is the newest turn`);
    }
    // A session at which somebody is may grow as fast as it is asked for: that keeps it from nobody, unless the
    // turn is one that was not there yet, perhaps the claim that won.
    const isKnown = owner !== null && (owner.turn === null || state.turns.some((one) => one.turn_id === owner.turn));
    if (!isKnown) await this.checkStill(state.last_seq);
    this.named = newest;
    if (turn.state === "completed" || gate.boundary === "answered") {
      const got = turn.state === "completed" ? "completed" : "answered";
      throw new Refused("nothing_to_resume", `turn ${newest}, ${got}`, "a turn without an end");
    }
    this.check(gate);
    return [state.last_seq, gate, turn];
  }

  /** Throws Refused (`stale`) where state and gate were not told of the same log. */
  private async checkStill(seq: number): Promise<void> {
    const after = (await this.session.project("state")) as State | null;
    if (after?.last_seq === seq) return;
    const got = after === null ? "no session" : String(after.last_seq);
    throw new Refused("stale", got, String(seq), "the session grew while it was judged, each time until the timeout");
  }

  /** Throws Blocked where something keeps it that the caller has not looked at. */
  private check(gate: Gate): void {
    const isAnswered = (callId: string | undefined) => callId !== undefined && Object.hasOwn(this.checked, callId);
    const left = gate.reasons.filter(
      (one) => one.verdict !== "check" || !(this.options.accept === "check" || isAnswered(one.call_id)),
    );
    if (left.length > 0) {
      throw new Blocked(left.some((one) => one.verdict === "blocked") ? "blocked" : "check", left, gate.calls);
    }
    this.calls = gate.calls.filter((one) => one.may !== "read_result" && !isAnswered(one.call_id));
  }

  /** What the caller has looked at. */
  private settled(gate: Gate): Draft[] {
    return Object.entries(this.checked).map(([name, word]) =>
      draft("tool_settled", { of: ofCall(oneCall(gate, name)), word }, { leaf: false }),
    );
  }

  /** The claim stands in the log, durably. Throws Unavailable where nobody says so in time. */
  private async isTaken(sent: Fields): Promise<boolean> {
    for (;;) {
      try {
        if ((await this.session.turnFacts({ turnId: this.turnId })) === null) return false;
        await this.session.place([sent], { synced: true });
        return true;
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        await this.pause(error);
      }
    }
  }

  /** Before it is asked once more. Throws `error` where its time is over. */
  private async pause(error: Error): Promise<void> {
    if (performance.now() + BACKOFF_MS_MIN > this.until) throw error;
    await sleep(BACKOFF_MS_MIN);
  }
}

/** Its sub-agent is done, and was killed before it said so in this session. */
function isUntold(call: GateCall): boolean {
  const isTold = ["finished", "failed", "observed"].includes(call.state);
  return Boolean(call.child) && call.outcome === "done" && !isTold;
}

function submission(turnId: string, payload: object): Fields {
  const one = draft("turn_submitted", payload, { id: turnId, turn: turnId, once: true });
  return asEntry(one, Buffer.from(values.jsonText(payload)));
}

/** Who has it, as the daemon says it of a retry. owner: who works on it now. */
async function claimedBy(session: SessionLog, turn: TurnFacts, owner: { pid: number } | null): Promise<string> {
  const line = await lineOf(session, turn.submitted_seq ?? 0, `turn ${turn.turn_id}`);
  const by = (line["owner"] ?? { pid: 0, boot: "" }) as { pid: number; boot: string };
  const of = `process ${owner === null ? by.pid : owner.pid} of boot ${by.boot}, since ${String(line["at"])}`;
  return `turn ${turn.turn_id}, ${turn.state}, ${of}`;
}

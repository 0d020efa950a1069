/**
 * One turn of a session: appends its state changes, and opens its reply.
 *
 * Owns: its events, and the opening of its reply. Refuses: what is legal (the daemon says), tools of
 * a turn. `state` is what this object knows: it moves with the calls made here, and is looked up anew
 * by `session.turn()`.
 */

import { checkArgument, checkArguments } from "../encoding/argumentChecks.ts";
import { newStreamId } from "../encoding/ids.ts";
import { isPassing } from "../errors.ts";
import { warn } from "../link/warnings.ts";
import type { Info } from "../reply/options.ts";
import type { Reply } from "../reply/reply.ts";
import type { Entry, EntryLog, OpenReply } from "./entries.ts";

interface Facts {
  turnId: string;
  messageId: string;
  streamIds: string[];
  state: string;
}

export class Turn {
  /** Its id; also the id of the entry that submitted it. */
  readonly turnId: string;
  /** The id of the user's message: what a resubmit is known by. */
  readonly messageId: string;
  /** The streams of its replies, that of the submit first. */
  readonly streamIds: string[];
  /** submitted, worker_started, assistant_started, completed or interrupted. */
  state: string;
  private readonly session: EntryLog;
  private readonly open: OpenReply;

  /** Made by `session.submit` and `session.turn`. */
  constructor(session: EntryLog, open: OpenReply, facts: Facts) {
    this.session = session;
    this.open = open;
    this.turnId = facts.turnId;
    this.messageId = facts.messageId;
    this.streamIds = facts.streamIds;
    this.state = facts.state;
  }

  /** A worker has taken it up. */
  workerStarted(): Promise<Entry> {
    return this.moved("worker_started", {});
  }

  /**
   * Open the reply of this turn. Its `end()` appends the messages to the session.
   *
   * Without a streamId it is that of the submit, while no reply has taken it.
   */
  async reply(
    options: { streamId?: string; parent?: string; autoRelease?: boolean; meta?: Info } = {},
  ): Promise<Reply> {
    checkArguments(options, { streamId: "id", parent: "id", autoRelease: "bool", meta: "object" });
    const isFresh = this.state === "submitted" || this.state === "worker_started";
    const streamId = options.streamId ?? (isFresh ? this.streamIds[0] : undefined) ?? newStreamId();
    try {
      await this.moved("assistant_started", { stream_id: streamId });
    } catch (error) {
      // A reply never fails for the daemon's sake; it names its turn.
      if (!isPassing(error)) throw error;
      warn(`turn '${this.turnId}': that its reply began is not in the log: ${error.message}`);
      this.reached("assistant_started"); // the next one is not to have this one's id
    }
    if (!this.streamIds.includes(streamId)) this.streamIds.push(streamId);
    return this.open({ ...options, streamId, turnId: this.turnId });
  }

  /** It is done. A second end is kept in the log, changes nothing and is reported. */
  completed(): Promise<Entry> {
    return this.moved("completed", {});
  }

  /** It ended before it was done. */
  async interrupted(reason: string): Promise<Entry> {
    checkArgument(reason, "reason", "text");
    return this.moved("interrupted", { reason });
  }

  private async moved(state: string, payload: Info): Promise<Entry> {
    const entry = await this.session.append(`turn_${state}`, payload, { turn: this.turnId });
    this.reached(state);
    return entry;
  }

  private reached(state: string): void {
    if (this.state !== "completed" && this.state !== "interrupted") this.state = state;
  }
}

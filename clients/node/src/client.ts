/**
 * The client: opens replies and sessions, recovers replies, and answers requests when no daemon runs.
 *
 * Owns: `connect`, the environment variables, and what requests mean without a daemon. Refuses:
 * moving bytes (`link/link.ts` for events, `query/query.ts` for requests).
 */

/// <reference lib="esnext.disposable" preserve="true" />
import { decode } from "@msgpack/msgpack";

import { checkArgument, checkArguments, checkCall, type Kinds } from "./encoding/argumentChecks.ts";
import { checkedId, idOf, newStreamId } from "./encoding/ids.ts";
import type { Redact } from "./encoding/redact.ts";
import * as values from "./encoding/valueEncoding.ts";
import { Refused, Unavailable } from "./errors.ts";
import { BACKLOG_BYTES_MAX, BACKLOG_BYTES_MIN, CLOSE_MS, KNOCK_MS, TIMEOUT_MS } from "./limits.ts";
import { application, type Application } from "./link/application.ts";
import { Link } from "./link/link.ts";
import * as links from "./link/linkRegistry.ts";
import { PRODUCER } from "./link/producer.ts";
import { findSocket } from "./link/socketPath.ts";
import { within } from "./link/timers.ts";
import { DisabledQuery, isEnabled } from "./query/disabled.ts";
import * as offline from "./query/offline.ts";
import { Absent, Query, knock, type Asks } from "./query/query.ts";
import { SyncTokens } from "./query/syncTokens.ts";
import { repliesOf, type PartialReply } from "./recovered/partialReply.ts";
import type { ReplyOptions } from "./reply/options.ts";
import { Reply } from "./reply/reply.ts";
import type { Present, RepairStep, Report } from "./session/audit.ts";
import * as auditing from "./session/auditing.ts";
import type { SessionInfo } from "./session/auditing.ts";
import { CLIENT_CALLS } from "./session/calls.ts";
import { SessionLog } from "./session/log.ts";
import { Session } from "./session/session.ts";
import { decodeAnswer, type Fields } from "./wire/codec.ts";

export interface ConnectOptions {
  /** The data directory (else WALLD_DATA), for answers without a daemon. */
  data?: string;
  /** What a request waits. */
  timeoutMs?: number;
  /** What is held until it is known synced. */
  backlogBytesMax?: number;
  /** Changes every text but ids and names before it leaves the process; what it throws is thrown by the call. */
  redact?: Redact;
  /**
   * The application whose replies these are, and whose `orphans` are seen; else WALLD_APP, else the main program's
   * path, or a launcher's name and the working directory. "*": those of all applications of this user are seen.
   */
  app?: string;
}

const OF_A_CLIENT: Kinds = { app: "id", data: "text", timeoutMs: "milliseconds", backlogBytesMax: "seq" };
const OF_A_REPLY: Kinds = { streamId: "id", turnId: "entry", parent: "entry", autoRelease: "bool", meta: "object" };

/**
 * The link of a client, at one moment.
 *
 * sent: events the kernel has taken for the daemon at hand, or that are done with. backlog: events it
 * has not (yet); after a daemon's death also those that are not known synced. backlogBytes: what they
 * occupy. unsyncedBytes: all that is held for resending. dropped: events lost for want of memory
 * before they were sent: a gap. unheld: sent, but dropped before they were known synced. late: calls
 * after a terminal. refused: events the daemon would not take. streams: replies not yet released and
 * acknowledged.
 */
export interface Stats {
  connected: boolean;
  socket: string;
  sent: number;
  backlog: number;
  backlogBytes: number;
  unsyncedBytes: number;
  dropped: number;
  unheld: number;
  late: number;
  refused: number;
  reconnects: number;
  streams: number;
  /** Of which the daemon takes nothing: their id is in use. */
  refusedReplies: number;
}

/**
 * A client. Never fails for want of a daemon: events wait in memory until there is one.
 *
 * socket: its path; else WALLD_SOCKET, else the first that exists of
 * $XDG_RUNTIME_DIR/walld/walld.sock, /run/walld/walld.sock and a private folder of this user in the
 * temporary directory.
 */
export function connect(socket?: string, options: ConnectOptions = {}): Client {
  return new Client(socket, options);
}

export class Client {
  private readonly link: Link;
  private readonly query: Asks;
  private readonly data: string | undefined;
  private readonly redact: Redact | undefined;
  private readonly application: Application;
  private readonly locate: () => string;
  /** What close() comes to, from the first one on. */
  private closing: Promise<boolean> | undefined;

  constructor(socket: string | undefined, options: ConnectOptions) {
    checkArguments(options, OF_A_CLIENT);
    if (socket !== undefined) checkArgument(socket, "socket", "text");
    const bytesMax = options.backlogBytesMax ?? BACKLOG_BYTES_MAX;
    if (bytesMax < BACKLOG_BYTES_MIN) {
      throw new RangeError(`backlogBytesMax must be at least ${BACKLOG_BYTES_MIN}, got ${bytesMax}`);
    }
    this.data = options.data ?? (process.env["WALLD_DATA"] || undefined);
    this.redact = options.redact;
    this.application = application(options.app);
    this.locate = () => findSocket(socket);
    if (isEnabled()) {
      this.link = links.join(socket, bytesMax);
      const syncTokens = new SyncTokens(() => this.link.ackHandler.log);
      this.query = new Query(this.locate, options.timeoutMs ?? TIMEOUT_MS, syncTokens);
      this.link.dial(); // now: it takes a turn of the event loop, and a reply wants it there
    } else {
      this.link = new Link(null, bytesMax);
      this.query = new DisabledQuery();
    }
  }

  // --- sending ---

  /** Open a reply; `end()` it once your copy is saved. */
  reply(sessionId: string, options: ReplyOptions = {}): Reply {
    checkArguments(options, OF_A_REPLY);
    const { streamId = newStreamId(), turnId = null, parent = null, meta, autoRelease = true } = options;
    const stream = this.link.begin({
      stream_id: streamId,
      session_id: checkedId(sessionId, "sessionId"),
      turn_id: turnId === null ? null : idOf(turnId),
      parent: parent === null ? null : idOf(parent),
      meta: values.infoBytes(meta),
      at_ms: Date.now(),
      app: this.application.app,
    });
    return new Reply(this.link, stream, this.redact, autoRelease);
  }

  /**
   * The application's copy of a reply of this process is safe. False: not known here.
   *
   * Works after the Reply object is gone. RangeError before its end.
   */
  release(streamId: string): boolean {
    const stream = this.link.registry.named(checkedId(streamId, "streamId"));
    return stream !== undefined && this.link.release(stream) > 0;
  }

  /** What was sent, what waits, what was dropped. */
  stats(): Stats {
    const { backlog, registry, reconnect } = this.link;
    return {
      connected: this.link.connected,
      socket: reconnect.path,
      sent: registry.events - backlog.waitingEvents - backlog.droppedEvents,
      backlog: backlog.waitingEvents,
      backlogBytes: backlog.waitingBytes,
      unsyncedBytes: backlog.heldBytes,
      dropped: backlog.droppedEvents,
      unheld: backlog.unheldEvents,
      late: this.link.lateEvents,
      refused: this.link.ackHandler.refusedEvents,
      reconnects: Math.max(0, reconnect.connections - 1),
      streams: registry.byNumber.size,
      refusedReplies: this.link.ackHandler.refusedReplies,
    };
  }

  /** One sentence: would what this process says now be recoverable? */
  async check(): Promise<string> {
    if (this.link.isOff) return "not recoverable: walld is switched off (WALLD_ENABLED)";
    let path = "";
    let refusal: unknown;
    try {
      if (!this.link.isWelcome) await knock((path = this.locate()), KNOCK_MS);
    } catch (error) {
      refusal = error;
    }
    const { connected, backlog, sent, socket } = this.stats();
    if (refusal !== undefined && !this.link.isWelcome) {
      const said = refusal instanceof Error ? refusal.message : String(refusal);
      const why = refusal instanceof Absent ? said : path === "" ? `no walld: ${said}` : `at ${path} ${said}`;
      return `not recoverable: ${why}; ${backlog} events wait in memory`;
    }
    if (connected && backlog === 0) return `recoverable: walld at ${socket} has taken all ${sent} events`;
    if (connected) {
      return (
        `not wholly recoverable: walld at ${socket} has yet to take ${backlog} events, ` +
        "which wait in memory"
      );
    }
    return `recoverable: walld listens at ${path}; ${backlog} events are on their way to it`;
  }

  // --- asking ---

  /** The latest unreleased reply of a session, or that stream. null: there is nothing, proven. */
  async recover(what: string | { streamId: string }): Promise<PartialReply | null> {
    const isStream = typeof what === "object" && what !== null;
    const streamId = isStream ? checkedId(what.streamId, "streamId") : null;
    const sessionId = isStream ? null : checkedId(what, "sessionId");
    return (await this.replies("latest", sessionId, streamId)).at(-1) ?? null;
  }

  /** Every unreleased reply, in the order in which they began; without an id, of this application. */
  recoverAll(sessionId?: string): Promise<PartialReply[]> {
    return this.replies("all", sessionId === undefined ? null : checkedId(sessionId, "sessionId"), null);
  }

  /** Unreleased replies of this application whose process is gone: the only ones to adopt. */
  orphans(sessionId?: string): Promise<PartialReply[]> {
    const of = sessionId === undefined ? null : checkedId(sessionId, "sessionId");
    return this.replies("orphans", of, null);
  }

  /**
   * Replies of this process that have ended, cancelled ones say, and are not released.
   *
   * Save each, then `release(streamId)`. Throws Unavailable.
   */
  async unsaved(sessionId?: string): Promise<PartialReply[]> {
    if (sessionId !== undefined) checkedId(sessionId, "sessionId");
    const found: PartialReply[] = [];
    for (const streamId of this.link.registry.unreleased(sessionId)) {
      found.push(...(await this.replies("all", null, streamId)));
    }
    return found;
  }

  /** Is there an unreleased reply of this session? null: cannot know. */
  async hasPartial(sessionId: string): Promise<boolean | null> {
    checkedId(sessionId, "sessionId");
    const ask = (): Fields => ({ session_id: sessionId, seen: this.seen(sessionId, null) });
    try {
      const answer = await this.query.ask("HasPartial", ask);
      return decodeAnswer(answer, "bool") as boolean;
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      return this.keptOffline(error, sessionId);
    }
  }

  /**
   * Remove a reply whose owner is gone, once it is saved. False: there is none such.
   *
   * Throws Refused where it has grown beyond `lastSeq` or its owner lives.
   */
  async resolve(streamId: string, lastSeq?: number): Promise<boolean> {
    checkArguments({ lastSeq }, { lastSeq: "seq" });
    const fields = { stream_id: checkedId(streamId, "streamId"), last_seq: lastSeq ?? null };
    const ask = (): Fields => ({ ...fields, seen: this.seen(null, streamId) });
    return decodeAnswer(await this.query.ask("Resolve", ask), "bool") as boolean;
  }

  /** How the daemon is. */
  async status(): Promise<Record<string, unknown>> {
    return decode(await this.query.ask("Status", {})) as Record<string, unknown>;
  }

  /** The log of a session. Asks nothing. */
  session(sessionId: string): Session {
    return new Session(this.log(sessionId), (of) => (options) => this.reply(of, options));
  }

  /** Sessions that were written, whose id begins so. */
  async sessions(prefix = ""): Promise<SessionInfo[]> {
    checkCall(CLIENT_CALLS.sessions, { prefix });
    return auditing.sessions(this.query, prefix);
  }

  /**
   * Remove all there is of a session, replies and artifacts too. False: there was nothing; or the daemon was gone
   * before it could answer, and the delete was asked for again.
   */
  async delete(sessionId: string): Promise<boolean> {
    checkCall(CLIENT_CALLS.delete, { sessionId });
    const isGone = this.link.leaving(sessionId);
    const answer = await this.log(sessionId).ask("Delete", {});
    isGone();
    return decodeAnswer(answer, "bool") as boolean;
  }

  /**
   * What the log holds against your own store; without an id, of every session. present: the turn or message ids that
   * your store holds, or a function that says of a turn true, false, or null: cannot know.
   */
  async audit(sessionId?: string, options: { present?: Present } = {}): Promise<Report> {
    checkCall(CLIENT_CALLS.audit, { sessionId: sessionId ?? null }, options);
    return auditing.audited(this.query, (id) => this.log(id), sessionId, options.present);
  }

  /** Steps for your own store, in order; one whose `key` was done before is passed over. */
  async repairPlan(sessionId: string, options: { present: Present }): Promise<RepairStep[]> {
    checkCall(CLIENT_CALLS.repairPlan, { sessionId }, options);
    return auditing.repairPlan(this.log(sessionId), options.present);
  }

  /**
   * Wait for the kernel to take the rest, at most `timeoutMs`; true if it has. Then let go.
   *
   * Another close() waits for the first, in its own time, and says the same.
   */
  async close(timeoutMs: number = CLOSE_MS): Promise<boolean> {
    checkArgument(timeoutMs, "timeoutMs", "milliseconds");
    if (this.link.isOff) return true;
    if (this.closing !== undefined) return within(timeoutMs, this.closing, false);
    this.closing = this.letGo(timeoutMs);
    return this.closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // --- within ---

  private log(sessionId: string): SessionLog {
    const id = checkedId(sessionId, "sessionId");
    const app = this.application.seesAll ? null : this.application.app;
    return new SessionLog(id, this.query, this.redact, (of) => this.seen(of, null), app);
  }

  private async letGo(timeoutMs: number): Promise<boolean> {
    if (links.isLast(this.link)) this.link.failAll();
    const isDone = await this.link.flush(timeoutMs);
    if (isDone) await this.link.hearWhetherBegun(timeoutMs);
    this.query.close();
    if (links.leave(this.link)) this.link.shut();
    return isDone;
  }

  private async replies(
    which: string,
    sessionId: string | null,
    streamId: string | null,
  ): Promise<PartialReply[]> {
    const fields: Fields = { which, session_id: sessionId, stream_id: streamId };
    const ask = (): Fields => ({ ...fields, seen: this.seen(sessionId, streamId) });
    try {
      const found = repliesOf(await this.query.ask("Recover", ask));
      // Who asks for a session or a reply by its id sees it; who sweeps takes what is found, and so sees its own.
      const isNamed = which !== "orphans" && (sessionId !== null || streamId !== null);
      if (isNamed || this.application.seesAll) return found;
      return found.filter((one) => one.app === null || one.app === this.application.app);
    } catch (error) {
      if (!(error instanceof Unavailable) || error instanceof Refused) throw error;
      const kept = this.keptOffline(error, sessionId);
      if (kept === false) return [];
      const hint = kept ? `; something is kept: \`walld recover --data ${this.data}\` can read it` : "";
      throw hint === "" ? error : new Unavailable(error.message + hint, { cause: error });
    }
  }

  /**
   * How far this process has come with the streams it asks about: it reads its own writes.
   *
   * Of what is not sent yet too: the daemon waits for it. So this is asked with a connection at hand:
   * then there is a daemon to send to. What is synced needs no word: the daemon had it, and one that
   * has let go of it since, for somebody who deleted its session, would be waited for in vain.
   */
  private seen(sessionId: string | null, streamId: string | null): Fields[] {
    const streams = this.link.registry
      .asked(sessionId, streamId)
      .filter((stream) => !stream.gone && stream.due > stream.synced);
    if (streams.length > 0) this.link.hurry();
    return streams.map((stream) => ({ producer: PRODUCER, stream: stream.number, seq: stream.due }));
  }

  /** What the data directory alone can say: true, false, or null for cannot know. */
  private keptOffline(error: Unavailable, sessionId: string | null): boolean | null {
    if (this.data === undefined || !offline.nobodyListens(error.cause)) return null;
    // What this process itself holds for a daemon is not in the directory.
    if (this.link.registry.byNumber.size > 0) return null;
    return offline.isKept(this.data, process.geteuid!(), sessionId);
  }
}

/**
 * One session: appends entries to its log, and reads its views.
 *
 * Owns: what each call means in entries and views. Refuses: the requests (`log.ts`), turns (`turn.ts`), what is legal
 * and what a view is (the daemon says).
 */

import { checkArgument, checkArguments, checkCall } from "../encoding/argumentChecks.ts";
import { idOf, isEntry } from "../encoding/ids.ts";
import { Refused } from "../errors.ts";
import { EVENTS_PAGE } from "../limits.ts";
import { withPlainCalls } from "../recovered/plainCalls.ts";
import type { Info } from "../reply/options.ts";
import { adopt } from "./adopting.ts";
import { read, resolved, resolvedTurns, upload } from "./artifacts.ts";
import { SESSION_CALLS as CALLS } from "./calls.ts";
import { child } from "./children.ts";
import type * as types from "./entries.ts";
import { fingerprintPieces, workspaceFingerprint } from "./fingerprint.ts";
import { draft, eventOf, placedIn, type SessionLog } from "./log.ts";
import { resume } from "./resuming.ts";
import { explain, knownFiles, resumeCheck, settle, type Explanation, type Gate } from "./settling.ts";
import { findTurn, submit } from "./submitting.ts";
import { inPieces, shares } from "./truncation.ts";
import { Turn, present, type OpenReply } from "./turn.ts";

/** Opens a reply in a session. */
export type OpensReplies = (sessionId: string) => OpenReply;

export class Session {
  readonly sessionId: string;
  private readonly log: SessionLog;
  private readonly opens: OpensReplies;

  /** Made by `client.session`. @internal */
  constructor(log: SessionLog, opens: OpensReplies) {
    this.sessionId = log.sessionId;
    this.log = log;
    this.opens = opens;
  }

  // --- appending ---

  /** Append an event; of a type of your own it is kept and in no message. */
  async append(type: string, payload: Info = {}, options: types.AppendOptions = {}): Promise<types.Entry> {
    checkCall(CALLS.append, { type, payload }, options);
    return this.log.append(type, payload, options);
  }

  /** Append all of them or none. */
  async appendMany(
    entries: readonly ({ type: string; payload?: Info } & types.EntryOptions)[],
    options: types.PlaceOptions = {},
  ): Promise<types.Entry[]> {
    checkCall(CALLS.appendMany, { entries }, options);
    if (entries.length === 0 && options.expectedSeq === undefined) return [];
    const drafts = entries.map(({ type, payload = {}, ...one }) => {
      checkCall(CALLS.append, { type, payload }, one);
      return draft(type, payload, one);
    });
    return this.log.appended(drafts, options);
  }

  /** Append a message; `meta` is kept beside its role and content. */
  async message(
    role: string,
    content: unknown,
    options: types.AppendOptions & { meta?: Info } = {},
  ): Promise<types.Entry> {
    checkCall(CALLS.message, { role, content }, options);
    const { meta = {}, ...rest } = options;
    return this.log.append("message", { role, content: content ?? null, ...meta }, rest);
  }

  /**
   * Replace a message, named by its id or message_id; or the whole list by another.
   *
   * The new message is its content (a text or an array), or an object; without a role it has that of the message
   * there. What was there stays in the log. Refused (`unknown_target`) where nothing would change: what was undone, what a
   * list took the place of, what is no message. To know, it reads the session.
   */
  async edit(target: types.EntryId, message: Info | string | readonly unknown[]): Promise<types.Entry>;
  async edit(messages: readonly Info[]): Promise<types.Entry>;
  async edit(
    target: types.EntryId | readonly Info[],
    message?: Info | string | readonly unknown[],
  ): Promise<types.Entry> {
    checkCall(CALLS.edit, { target, message });
    if (isList(target)) {
      if (message === undefined) return this.listed("message_edit", "messages", target);
      throw new TypeError("edit() of one message needs its id, a string; of a list nothing else");
    }
    const isContent = typeof message === "string" || Array.isArray(message);
    const edited = (isContent ? { content: message } : (message ?? {})) as Info;
    checkArgument(edited, "message", "object");
    const hasRole = "role" in edited;
    if (!hasRole && !("content" in edited)) {
      throw new TypeError("edit() of one message needs the message that takes its place, or its content");
    }
    const of = idOf(target);
    const asked = { of, ...(hasRole ? {} : { role: true }) };
    const told = (await this.log.project("edit_target", asked)) as Record<string, string> | null;
    const { role, why, ...found } = told ?? { target: of };
    const lacks = why ?? (hasRole || role !== undefined ? undefined : "a message of this branch");
    if (lacks !== undefined) throw new Refused("unknown_target", of, lacks, "an edit would change nothing");
    return this.log.append("message_edit", { ...found, message: { ...(hasRole ? {} : { role }), ...edited } });
  }

  /** Take the last n messages off; more than there are empties the session. */
  async undo(n = 1): Promise<types.Entry> {
    checkCall(CALLS.undo, { n });
    return this.log.append("undo", { n });
  }

  /** Name an entry; null takes the name off. */
  async label(id: types.EntryId, text: string | null): Promise<types.Entry> {
    checkCall(CALLS.label, { id, text });
    return this.log.append("label", { target: idOf(id), text });
  }

  /** Set a value that belongs to the branch it is set on. */
  async setting(key: string, value: unknown): Promise<types.Entry> {
    checkCall(CALLS.setting, { key, value });
    return this.log.append("setting", { key, value: value ?? null });
  }

  /** From here on the branch speaks with another model; in no message. */
  async changeModel(model: string): Promise<types.Entry> {
    checkCall(CALLS.changeModel, { model });
    return this.log.append("model_change", { model });
  }

  /**
   * What is appended next hangs on entry `at`; null: before the first one.
   *
   * name: what the branch that begins there is called. Where `at` is such a name, and no entry's id, that branch goes
   * on. summary: of the branch that is left, which messages() has as the user's from here on.
   */
  async branch(
    at: types.EntryId | null,
    options: { name?: string; summary?: string } = {},
  ): Promise<types.Entry> {
    checkCall(CALLS.branch, { at }, options);
    const id = at === null ? null : idOf(at);
    try {
      return await this.moved(id, options);
    } catch (error) {
      if (id === null || !isRefused(error, "unknown_target")) throw error;
      return this.moved(await this.log.tipOf(id, error), { ...options, name: options.name || id });
    }
  }

  private async moved(at: string | null, options: { name?: string; summary?: string }): Promise<types.Entry> {
    const { name, summary } = options;
    const drafts = [draft("leaf", { target: at, ...(name ? { name } : {}) })];
    if (summary !== undefined) drafts.push(draft("branch_summary", { target: at, text: summary }));
    return (await this.log.appended(drafts)).at(-1)!;
  }

  /**
   * Messages before `firstKept` read as a summary, or all so far as `replacement`. Only `messages()` changes; every
   * event stays.
   */
  async compact(
    options: { summary: string; firstKept: types.EntryId } | { replacement: readonly Info[] },
  ): Promise<types.Entry> {
    checkCall(CALLS.compact, {}, options);
    const given: { summary?: string; firstKept?: types.EntryId; replacement?: readonly Info[] } = options;
    const { summary, firstKept, replacement } = given;
    if (replacement !== undefined && summary === undefined && firstKept === undefined) {
      return this.listed("compaction", "replacement", replacement);
    }
    if (replacement !== undefined || summary === undefined || firstKept === undefined) {
      throw new TypeError("compact() takes a summary and firstKept, or a replacement");
    }
    return this.log.append("compaction", { summary, first_kept: idOf(firstKept) });
  }

  /** Keep bytes, or the file of that path, beside the session; the event names them. */
  async artifact(
    source: types.Source,
    options: { mediaType?: string; name?: string; turn?: types.EntryId } = {},
  ): Promise<types.Artifact> {
    checkCall(CALLS.artifact, { source }, options);
    const described = await upload(this.log, source, options.mediaType, options.name);
    const entry = await this.log.append("artifact", described, present({ turn: options.turn }));
    return { ...entry, sha256: described.sha256, size: described.size };
  }

  /** Remember what the workspace at `root` is now, for `resumeCheck` to compare. */
  async checkpointWorkspace(root: string, options: { files?: readonly string[] } = {}): Promise<types.Entry> {
    checkCall(CALLS.checkpointWorkspace, { root }, options);
    const [known] = await knownFiles(this.log);
    const found = await workspaceFingerprint(root, [...new Set([...Object.keys(known), ...(options.files ?? [])])]);
    const fresh = Object.entries(found.files).filter(([path, hash]) => !Object.hasOwn(known, path) || known[path] !== hash);
    found.files = Object.fromEntries(fresh);
    let entry: types.Entry | undefined;
    for (const fingerprint of fingerprintPieces(found)) {
      // No request has room for all of them; the last one says that it is done.
      entry = await this.log.append("lifecycle", { kind: "workspace_checkpoint", fingerprint });
    }
    return entry!;
  }

  // --- turns ---

  /**
   * Take in the user's message; it survives the loss of power once this resolves.
   *
   * The same messageId and content give the first turn. NotDurable where that is not known in time.
   */
  async submit(content: unknown, options: types.SubmitOptions = {}): Promise<Turn> {
    checkCall(CALLS.submit, { content }, options);
    const { calls } = options;
    if (calls !== undefined && calls !== "journal") {
      throw new RangeError(`calls of submit: got ${JSON.stringify(calls).slice(0, 80)}, limit "journal"`);
    }
    return new Turn(this.log, this.opens(this.sessionId), await submit(this.log, content, options));
  }

  /**
   * Go on with the newest turn, where the gate lets it: a new turn on its message, synced.
   *
   * `resumeCheck` and the turn are one step: of several that resume at once one gets it. Its `calls` are the open
   * ones, each with `may`; what may `run`, you may run directly. Where the gate says check: `checked` has the call ids
   * that you looked at, and what became of each; accept: "check" goes on all the same. Throws Blocked where it must
   * not go on, Refused: `already_resumed` (by whom), `nothing_to_resume`, `stale`.
   */
  async resume(options: types.ResumeOptions = {}): Promise<Turn> {
    checkCall(CALLS.resume, {}, options);
    return new Turn(this.log, this.opens(this.sessionId), await resume(this.log, options));
  }

  /** A turn by its id, or by a stream of its replies. Refused where there is none. */
  async turn(which: types.EntryId | { streamId: string }): Promise<Turn> {
    const isId = typeof which === "string" || isEntry(which);
    if (!isId) checkArguments(which, { streamId: "id" });
    checkArgument(isId ? which : which.streamId, "turn", "entry");
    const facts = await findTurn(this.log, isId ? { turnId: idOf(which) } : which);
    return new Turn(this.log, this.opens(this.sessionId), facts);
  }

  /** A new session from the path to entry `at` (null: the leaf; "": before the first entry); whole: every branch. */
  async fork(at: types.EntryId | null, newId: string, options: { whole?: boolean } = {}): Promise<Session> {
    checkCall(CALLS.fork, { at, newId }, options);
    const fields = { new_id: newId, whole: options.whole ?? false };
    const id = at === null ? null : idOf(at);
    const forked = async (place: string | null) =>
      placedIn(await this.log.ask("Fork", { ...fields, at: place }, { again: false }));
    try {
      await forked(id);
    } catch (error) {
      if (id === null || !isRefused(error, "unknown_entry")) throw error;
      await forked((await this.log.tipOf(id, error)) ?? "");
    }
    return new Session(this.log.of(newId), this.opens);
  }

  /**
   * The session of a sub-agent, joined to the call that it works for; synced.
   *
   * Begin it before the work: while the call has no result it has the last words of the child's newest turn, once that
   * is completed or answered, and till then the gate judges the call by the child's gate. `completed()` of a turn of it
   * gives the call its result (`tool_finished`; say none yourself), once; where that was killed, `child` does that is
   * asked for again. turn, streamId, n: of the call, as `settle` takes them. Refused: `unknown_call`, none that is open
   * has that id; `ambiguous_call`, several have it.
   */
  async child(id: string, options: types.ChildOptions): Promise<Session> {
    checkCall(CALLS.child, { id }, options);
    checkArgument(options.callId, "callId", "entry");
    return new Session(await child(this.log, id, options), this.opens);
  }

  // --- the gate ---

  /** May the work go on? What the gate says; null where nothing is kept of the id. */
  async resumeCheck(options: types.ResumeCheckOptions = {}): Promise<Gate | null> {
    checkCall(CALLS.resumeCheck, {}, options);
    return resumeCheck(this.log, options);
  }

  /**
   * What was done, what was being said, what is unknown, what may be done now; options are those of `resumeCheck`.
   *
   * `may` has a row for each thing that is open, with the commands, or the code, for it. null where nothing was ever
   * kept of the id; Unsupported where the daemon knows no such view.
   */
  async explain(options: types.ResumeCheckOptions = {}): Promise<Explanation | null> {
    checkCall(CALLS.explain, {}, options);
    return explain(this.log, options);
  }

  /**
   * Say what became of a call of which nobody knows, or whether it may run; synced.
   *
   * ran, did_not_run: it did; the model is told so. granted: it may run, though it may have run before. denied: it may
   * not. The newest word counts. Refused: `unknown_call`, `ambiguous_call`, `call_at_work`, `stale`.
   */
  async settle(
    callId: types.EntryId,
    word: "ran" | "did_not_run" | "granted" | "denied",
    options: types.SettleOptions = {},
  ): Promise<types.Entry> {
    checkCall(CALLS.settle, { callId, word }, options);
    return settle(this.log, idOf(callId), word, options);
  }

  /**
   * What a process that is gone had said becomes messages of the session, once; then its replies are resolved.
   *
   * streamId: that reply alone, whichever application's; else all of this session that are this application's or name
   * none. Killed anywhere within, or run twice: the same entries. Refused: its owner lives.
   */
  async adopt(options: { streamId?: string } = {}): Promise<types.Entry[]> {
    checkCall(CALLS.adopt, {}, options);
    return adopt(this.log, options.streamId);
  }

  // --- reading ---

  /**
   * The messages up to the leaf, or up to entry `branch`, or to the last of the branch that is called so. null: never written. A reply of a turn that is not
   * released stands in its turn.
   *
   * Refused (`stale`): the session has left the branch of the page that `before` is of.
   */
  async messages(options: types.MessagesOptions & { last: number }): Promise<types.MessagePage | null>;
  async messages(options?: types.MessagesOptions): Promise<Record<string, unknown>[] | null>;
  async messages(options: types.MessagesOptions = {}): Promise<types.MessagePage | null> {
    checkCall(CALLS.messages, {}, options);
    const { format = "plain", branch, compacted = true, unknown = "say", last, before } = options;
    if (before !== undefined && last === undefined) {
      throw new RangeError("before needs last, the number of messages before it");
    }
    const asked = { format, compacted, ...present({ last, before }), ...(unknown === "say" ? {} : { unknown }) };
    const told = (place: object) => this.log.project("messages", { ...asked, ...place });
    const found = (await this.onBranch(branch, told, [])) as Record<string, unknown>[] | Page | null;
    if (found === null) return null;
    const page: Page = Array.isArray(found) ? { messages: found, before: null } : found;
    const whole: Record<string, unknown>[] = [];
    for (const one of page.messages) {
      whole.push(format === "plain" ? withPlainCalls(await resolved(this.log, one)) : one);
    }
    return Object.defineProperty(whole, "before", { value: page.before }) as types.MessagePage;
  }

  /** Events of a type, those of a key or whose key begins so, the last n of them, in order. */
  async find(
    type: string,
    options: { key?: string; keyPrefix?: string; last?: number } = {},
  ): Promise<types.SessionEvent[]> {
    checkCall(CALLS.find, { type }, options);
    const { key, keyPrefix, last } = options;
    if (key !== undefined && keyPrefix !== undefined) {
      throw new RangeError(`find takes a key or a prefix, got '${key}' and '${keyPrefix}'`);
    }
    return this.log.find(type, present({ key, key_prefix: keyPrefix, last }));
  }

  /**
   * Events with seqs above `after`, as they stand in the log; branch: only those on the path to that entry, or to the
   * last of the branch that is called so.
   */
  async events(after = 0, options: { branch?: types.EntryId } = {}): Promise<types.SessionEvent[]> {
    checkCall(CALLS.events, { after }, options);
    const { branch } = options;
    const first = branch === undefined ? after : 0;
    let found: types.SessionEvent[] = [];
    let last: Uint8Array | undefined;
    for (let at = first; ; ) {
      const page = await this.log.lines(at, EVENTS_PAGE);
      if (last !== undefined && !(page[0] !== undefined && Buffer.from(last).equals(page[0]))) {
        // Deleted between two pages, perhaps begun anew.
        [found, last, at] = [[], undefined, first];
        continue;
      }
      found.push(...(last === undefined ? page : page.slice(1)).map(eventOf));
      if (page.length < EVENTS_PAGE) break;
      // The last one comes once more: so the next page is seen to be of the same session.
      [last, at] = [page.at(-1)!, found.at(-1)!.seq - 1];
    }
    if (branch === undefined || found.length === 0) return found;
    const told = (place: { branch?: string }) => Promise.resolve(this.path(found, place.branch!));
    return (await this.onBranch(branch, told, [])).filter((one) => one.seq > after);
  }

  /** Turns, tools, settings, model, leaf: where the session stands. null: never written. */
  async state(): Promise<unknown> {
    return this.log.project("state");
  }

  /** A view of the session by name, as JSON says it; null where it was never written. */
  async project(name: string, args: Info = {}): Promise<unknown> {
    checkCall(CALLS.project, { name, args });
    const view = await this.log.project(name, args);
    return name === "transcript" && view !== null ? resolvedTurns(this.log, view) : view;
  }

  /** The bytes of an artifact, by its hash in hex. Refused where it is gone or changed. */
  async readArtifact(sha256: string): Promise<Uint8Array> {
    checkCall(CALLS.readArtifact, { sha256 });
    return read(this.log, sha256);
  }

  // --- within ---

  /** An entry that holds a list, and others where it is too long for one; all or none. */
  private async listed(type: string, field: string, messages: readonly Info[]): Promise<types.Entry> {
    const drafts = inPieces(messages).map((piece, at) =>
      draft(type, { [field]: piece, ...(at > 0 ? { append: true } : {}) }),
    );
    // Where all of them are too long for one request, long content of them is put beside.
    const bytesMax = shares(drafts.map((one) => one.payload), type);
    return (await this.log.place(await this.log.made(drafts, bytesMax))).at(-1)!;
  }

  /** What `told` gives of that entry, or of the last of the branch that is called so; none: of one without entries. */
  private async onBranch<T>(
    branch: types.EntryId | undefined,
    told: (place: { branch?: string }) => Promise<T>,
    none: T,
  ): Promise<T> {
    if (branch === undefined) return told({});
    const id = idOf(branch);
    try {
      return await told({ branch: id });
    } catch (error) {
      if (!isRefused(error, "unknown_entry")) throw error;
      const tip = await this.log.tipOf(id, error);
      return tip === null ? none : told({ branch: tip });
    }
  }

  /** The events from the root to that entry; one whose parent was lost to damage hangs on the one before it. */
  private path(events: readonly types.SessionEvent[], branch: string): types.SessionEvent[] {
    const places = new Map<string, number>();
    const parents = events.map((one, place) => {
      const parent = one.parent === undefined || one.parent === null ? -1 : (places.get(one.parent) ?? place - 1);
      if (!places.has(one.id)) places.set(one.id, place);
      return parent;
    });
    const end = places.get(branch);
    if (end === undefined) {
      throw new Refused("unknown_entry", `branch ${branch}`, `an entry of session '${this.sessionId}'`);
    }
    const path: types.SessionEvent[] = [];
    for (let place = end; place >= 0; place = parents[place]!) path.push(events[place]!);
    return path.reverse();
  }
}

function isList(value: unknown): value is readonly Info[] {
  return Array.isArray(value);
}

function isRefused(error: unknown, code: string): boolean {
  return error instanceof Refused && error.code === code;
}

interface Page {
  messages: Record<string, unknown>[];
  before: string | null;
}

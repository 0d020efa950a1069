/**
 * Sends requests over one kept connection, several at a time, and matches the answers to them.
 *
 * Owns: the handshake, request ids, the joining of chunks, time limits, and which error becomes which
 * exception. Refuses: what a request means (`client.ts`, `session/session.ts`).
 *
 * The socket keeps no program alive; a request that is awaited does, by its time limit. What a daemon
 * that is frozen does not take would, and would pile up: so where a request is given up of which the socket
 * keeps something, no more is asked on that connection, and it ends with the last request on it.
 */

import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

import { Refused, Unavailable, Unsupported, isPassing } from "../errors.ts";
import { BACKOFF_MS_MIN, TIMEOUT_MS } from "../limits.ts";
import { writeFirst } from "../link/immediateWrite.ts";
import { CLIENT_NAME, PRODUCER } from "../link/producer.ts";
import { checkWay } from "../link/socketPath.ts";
import { after } from "../link/timers.ts";
import { Unreadable, decodeBody, type Fields } from "../wire/codec.ts";
import { PROTOCOL_VERSION, Splitter, encodeFrame } from "../wire/framing.ts";
import { TAGGED, type MessageName, type ToQuery, type WireAnswer, type WireError } from "../wire/messages.ts";
import { SyncTokens } from "./syncTokens.ts";

const TO_QUERY = ["Welcome", "Answer", "Error"] as const;
const HELLO = {
  version: PROTOCOL_VERSION,
  role: "query",
  producer: PRODUCER,
  client: CLIENT_NAME,
};
const NOT_YET = ["recovering", "behind"];
const CANNOT_KNOW = [...NOT_YET, "unreadable", "internal"];

export interface AskOptions {
  timeoutMs?: number;
  /** The same request may be asked twice. Where not, one that was sent and not answered is lost. */
  again?: boolean;
}

/** What is asked, or what makes it of the moment in which there is a connection to ask on. */
export type Question = Fields | (() => Fields);

/** What is asked at this moment. */
export function asOfNow(question: Question): Fields {
  return typeof question === "function" ? question() : question;
}

/** Whoever answers requests: a daemon, or one that is switched off. */
export interface Asks {
  /** The whole answer. Throws Unavailable or Refused. */
  ask(name: MessageName, fields: Question, options?: AskOptions): Promise<Uint8Array>;
  close(): void;
  /** Switched off: there is no daemon, and answers are empty. */
  readonly isOff?: boolean;
}

/** The connection ended before the answer; a kept one may merely have been old. */
class Stale extends Unavailable {}

/**
 * The daemon still reads its log, or what was said before the request. Nothing of the request was done: it may be asked
 * again.
 */
class NotYet extends Unavailable {}

/** There is no connection to be had, and the message says why. */
export class Absent extends Unavailable {}

/** No answer came in time. */
class Late extends Unavailable {}

export class Query implements Asks {
  private readonly locate: () => string;
  private readonly timeoutMs: number;
  private readonly syncTokens: SyncTokens;
  private current: Conversation | undefined;
  private opening: Promise<Conversation> | undefined;
  /** The latest limit of those who wait for `opening`. */
  private openUntil = 0;
  private path = "";
  private wasThere = false;

  constructor(locate: () => string, timeoutMs: number = TIMEOUT_MS, syncTokens = new SyncTokens()) {
    this.syncTokens = syncTokens;
    this.locate = locate;
    this.timeoutMs = timeoutMs;
  }

  async ask(name: MessageName, fields: Question, options: AskOptions = {}): Promise<Uint8Array> {
    const timeoutMs = options.timeoutMs ?? this.timeoutMs;
    const deadline = performance.now() + timeoutMs;
    let isLast = options.again === false;
    let said: NotYet | undefined;
    for (;;) {
      const conversation = await this.open(deadline);
      try {
        return await conversation.ask(name, asOfNow(fields), deadline, timeoutMs);
      } catch (error) {
        if (error instanceof NotYet && performance.now() + BACKOFF_MS_MIN < deadline) {
          said = error; // it has waited for as long as it holds a request back
          await sleep(BACKOFF_MS_MIN);
          continue;
        }
        if (!(error instanceof Stale)) throw error instanceof Late ? (said ?? error) : error;
        // Once: a request that ends daemons must not end them all.
        if (isLast) {
          throw new Unavailable(`${error.message}; whether it did what was asked is not known`, {
            cause: error,
          });
        }
        isLast = true;
      }
    }
  }

  close(): void {
    this.current?.close();
    void this.opening?.then((conversation) => conversation.close()).catch(() => undefined);
    this.opening = undefined;
  }

  private async open(deadline: number): Promise<Conversation> {
    while (this.current === undefined || this.current.isOver) {
      if (this.opening === undefined) this.begin(deadline);
      else this.openUntil = Math.max(this.openUntil, deadline);
      await this.waitForOpening(this.opening!, deadline);
    }
    return this.current;
  }

  private begin(deadline: number): void {
    this.openUntil = deadline;
    const opening = this.opened().finally(() => {
      if (this.opening === opening) this.opening = undefined;
    });
    this.opening = opening;
  }

  /** Each at most as long as it may: who waits longer, or less long, may have begun it. */
  private waitForOpening(opening: Promise<Conversation>, deadline: number): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const timer = after(deadline - performance.now(), () => reject(tooLate(this.path)));
      void opening.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }

  /** Connect and be welcomed; where a daemon was there before, give the next one time to come up. */
  private async opened(): Promise<Conversation> {
    for (;;) {
      try {
        this.path = this.locate();
        this.current = await Conversation.begin(this.path, () => this.openUntil, this.syncTokens);
        this.wasThere = true;
        return this.current;
      } catch (error) {
        const isOver = performance.now() + BACKOFF_MS_MIN > this.openUntil;
        if (!this.wasThere || isOver || error instanceof Refused) throw asUnavailable(error);
      }
      await sleep(BACKOFF_MS_MIN);
    }
  }
}

/**
 * Say hello there. Throws Unavailable where nobody listens, or where they let this process not in; what
 * somebody busy says later than `withinMs` behind that is not waited for.
 */
export async function knock(path: string, withinMs: number): Promise<void> {
  let until: number | undefined;
  try {
    (await Conversation.begin(path, () => (until ??= performance.now() + withinMs))).close();
  } catch (error) {
    if (!(error instanceof Late)) throw error;
  }
}

interface Asked {
  /** Its name, and that of the view where it is Project. */
  verb: string;
  tag: number;
  sessionId: unknown;
  chunks: Uint8Array[];
  resolve: (answer: Uint8Array) => void;
  reject: (error: Error) => void;
}

/**
 * One query connection, from Hello to its end. What was told of a session is shown here once, before anything
 * is asked about it.
 */
class Conversation {
  /** Nothing more is asked here. */
  isOver = false;
  private hasEnded = false;
  private readonly socket: Socket;
  private readonly splitter = new Splitter();
  private readonly asked = new Map<number, Asked>();
  private readonly syncTokens: SyncTokens;
  /** Whose sync token of before this daemon has not seen. */
  private readonly unshown: Set<string>;
  /** By its id, whose receipt was shown. */
  private readonly shown = new Map<number, string>();
  private nextId = 1;
  /** The version of the daemon. */
  private version = "";

  private constructor(path: string, syncTokens: SyncTokens) {
    this.syncTokens = syncTokens;
    this.unshown = syncTokens.sessions();
    this.socket = connect({ path });
    this.socket.unref();
  }

  /**
   * Connect and wait for Welcome, until a time that may move while it is waited for. It is asked for once the
   * Hello is sent: the kernel connects at once or not at all, however late a busy program hears of it.
   */
  static begin(path: string, until: () => number, syncTokens = new SyncTokens()): Promise<Conversation> {
    return new Promise((resolve, reject) => {
      try {
        checkWay(path);
      } catch (error) {
        reject(unreachable(path, error as NodeJS.ErrnoException));
        return;
      }
      const made = new Conversation(path, syncTokens);
      let timer: NodeJS.Timeout | undefined;
      const end = (error: Error): void => {
        clearTimeout(timer);
        reject(error);
        made.end(error);
      };
      let wasLate = false;
      const late = (): void => {
        const leftMs = until() - performance.now();
        if (wasLate && leftMs <= 0) {
          end(tooLate(path));
          return;
        }
        wasLate = leftMs <= 0; // once more: what came while the program was busy is read before
        timer = after(leftMs, late);
      };
      const welcomed = (): void => {
        clearTimeout(timer);
        resolve(made);
      };
      made.socket.on("error", (error: NodeJS.ErrnoException) => end(unreachable(path, error)));
      made.socket.on("close", () => end(new Stale("walld closed the connection")));
      made.socket.on("end", () => made.socket.destroy());
      made.socket.on("data", (received: Buffer) => made.feed(received, welcomed, end));
      made.socket.on("connect", () => {
        const hello = encodeFrame("Hello", { ...HELLO, log: syncTokens.log() });
        const taken = writeFirst(made.socket, hello);
        if (!(taken < 0) && taken !== hello.length) made.socket.write(hello.subarray(taken));
        timer = after(until() - performance.now(), late);
      });
    });
  }

  ask(name: MessageName, fields: Fields, deadline: number, timeoutMs: number): Promise<Uint8Array> {
    const id = this.nextId;
    this.nextId += 1;
    const frame = encodeFrame(name, { id, ...fields });
    return new Promise((resolve, reject) => {
      const timer = after(deadline - performance.now(), () => {
        if (this.socket.writableLength > 0) this.isOver = true;
        this.take(id);
        reject(new Late(`no answer from walld within ${timeoutMs} ms`));
      });
      this.asked.set(id, {
        verb: name === "Project" ? `Project ${String(fields["name"])}` : name,
        tag: TAGGED[name][0],
        sessionId: fields["session_id"],
        chunks: [],
        resolve: (answer) => {
          clearTimeout(timer);
          resolve(answer);
        },
        reject: (error) => {
          clearTimeout(timer);
          reject(error);
        },
      });
      this.show(fields["session_id"]);
      this.socket.write(frame);
    });
  }

  private show(sessionId: unknown): void {
    if (typeof sessionId !== "string" || !this.unshown.delete(sessionId)) return;
    const receipt = this.syncTokens.of(sessionId);
    if (receipt === undefined) return;
    this.shown.set(this.nextId, sessionId);
    this.socket.write(encodeFrame("Attest", { id: this.nextId, session_id: sessionId, receipt }));
    this.nextId += 1;
  }

  close(): void {
    this.end(new Unavailable("this walld client is closed"));
  }

  private end(error: Error): void {
    if (this.hasEnded) return;
    this.hasEnded = this.isOver = true;
    this.socket.destroy();
    for (const one of this.asked.values()) one.reject(error);
    this.asked.clear();
  }

  private feed(received: Buffer, welcomed: () => void, end: (error: Error) => void): void {
    try {
      for (const body of this.splitter.feed(received)) {
        const word = decodeBody(body, TO_QUERY) as unknown as ToQuery;
        if (word.is === "Welcome") {
          this.version = word.daemon;
          welcomed();
        } else if (word.is === "Answer") this.answered(word);
        else if (word.id === 0) {
          this.unknown(word);
          end(errorOf(word));
        }
        else this.refused(word);
      }
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      end(new Unavailable(`walld answered what this client cannot read: ${error.message}`));
    }
  }

  private answered({ id, chunk, last, receipt }: WireAnswer): void {
    this.asked.get(id)?.chunks.push(chunk);
    if (!last) return;
    this.shown.delete(id);
    const one = this.take(id);
    const sessionId = one?.sessionId;
    if (receipt.length > 0 && typeof sessionId === "string" && !this.unshown.has(sessionId)) {
      this.syncTokens.keep(sessionId, receipt); // one that was not looked at is not lost for it
    }
    one?.resolve(one.chunks.length === 1 ? chunk : Buffer.concat(one.chunks));
  }

  private refused(word: WireError): void {
    const sessionId = this.shown.get(word.id);
    this.shown.delete(word.id);
    if (sessionId !== undefined && isPassing(errorOf(word))) this.unshown.add(sessionId);
    const one = this.take(word.id);
    const isTag = word.code === "bad_request" && word.limit.startsWith("a request of tag");
    const isUnknown = isTag || word.code === "unknown_projection" || isNewArgument(word);
    one?.reject(isUnknown ? this.unsupported(one, word) : errorOf(word));
  }

  /** Of what a daemon ends the connection for, those requests whose tag it does not know: 0.1.0 does at one above 63. */
  private unknown(word: WireError): void {
    for (const [id, one] of this.asked) {
      if (word.code !== "malformed" || !word.got.startsWith(`tag ${one.tag}:`)) continue;
      this.asked.delete(id);
      one.reject(this.unsupported(one, word));
    }
  }

  private unsupported(one: Asked, word: WireError): Unsupported {
    return new Unsupported(one.verb, this.version, word.code, word.got, word.limit);
  }

  private take(id: number): Asked | undefined {
    const one = this.asked.get(id);
    this.asked.delete(id);
    if (this.isOver && this.asked.size === 0) this.close();
    return one;
  }
}

/** View -> arguments that older daemons do not know. Any other is the application's mistake. */
const ARGUMENTS_SINCE: Readonly<Record<string, string[]>> = {
  messages: ["unknown", "last", "before"],
  resume: ["policy"],
  edit_target: ["role"],
};

function isNewArgument({ code, got, limit, message }: WireError): boolean {
  if (code !== "bad_argument") return false;
  return (ARGUMENTS_SINCE[got] ?? []).some(
    (name) => message === `argument ${name} cannot be used` && !limit.split(" | ").includes(name),
  );
}

function tooLate(path: string): Late {
  return new Late(`no welcome from walld at ${path} in time`);
}

function errorOf(error: WireError): Error {
  if (error.id === 0) {
    return new Unavailable(
      `walld ended the connection: ${error.message} ` +
        `(code ${error.code}, got ${error.got}, limit ${error.limit})`,
    );
  }
  if (CANNOT_KNOW.includes(error.code)) {
    const Kind = NOT_YET.includes(error.code) ? NotYet : Unavailable;
    return new Kind(`walld cannot know now: ${error.message} (code ${error.code})`);
  }
  return new Refused(error.code, error.got, error.limit, error.message);
}

function unreachable(path: string, error: NodeJS.ErrnoException): Unavailable {
  const where = `uid ${process.geteuid?.()}`;
  if (error.syscall !== "connect") {
    return new Stale(`the connection to walld at ${path} is gone: ${error.message}`, { cause: error });
  }
  const said = `${error.message} (errno ${error.errno}, ${where})`;
  // Ours: whether one is there is not known.
  const isOurs = error.code === "EMFILE" || error.code === "ENFILE";
  const what = isOurs ? "this process has no descriptor left to ask walld" : "no walld";
  return new Absent(`${what} at ${path}: ${said}`, { cause: error });
}

function asUnavailable(error: unknown): Error {
  if (error instanceof Unavailable) return error;
  const text = error instanceof Error ? error.message : String(error);
  return new Absent(`no walld: ${text}`, { cause: error });
}

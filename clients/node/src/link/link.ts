/**
 * The link of a process to its daemon: takes streams and events, and sends them when a daemon is there.
 *
 * Owns: the socket, what is sent on it and when, and the wait for acknowledgements. Refuses: what an
 * event means (`reply/reply.ts`), what is held (`backlog.ts`), what the daemon's frames mean
 * (`ackHandler.ts`), when to try again (`reconnect.ts`).
 *
 * Node's socket keeps what the kernel does not take at once in its own memory, which dies with the
 * process. So nothing is given to it while it keeps anything. With an empty socket `write` calls
 * write(2) before it returns, and `writableLength` then says whether the kernel took all of it: that,
 * and nothing else, moves `sentSeq`. What was taken in part counts once the rest is taken.
 *
 *     no socket       nobody is connected; a timer tries again while there is something to deliver
 *     connecting      events wait in the ring; it takes a turn of the event loop
 *     flowing         the kernel has all there is: an event goes straight to write(2)
 *     stalled         the socket keeps something: events wait in the ring until it does not
 *
 * What the socket keeps also keeps the program alive, however it is unref'd. So a connection that the
 * kernel takes nothing of for STALL_MS is given up, and the next one says nothing before its Welcome.
 *
 * Invariant: `flowing` implies that nothing waits, so a token never overtakes an older event.
 */

import { connect, type Socket } from "node:net";

import { STALL_MS, VERSION_BACKOFF_MS } from "../limits.ts";
import type { Fields } from "../wire/codec.ts";
import { encodeFrame } from "../wire/framing.ts";
import { TAGGED, type MessageName } from "../wire/messages.ts";
import { AckHandler } from "./ackHandler.ts";
import { Backlog } from "./backlog.ts";
import type { Level } from "./durability.ts";
import { bytesOf, heldFrame, heldText, type Held } from "./eventFrames.ts";
import { helloFrame, resumeFrames } from "./handshake.ts";
import { NONE, descriptorOf, writeNow, writeFirst } from "./immediateWrite.ts";
import { nextStreamNumber } from "./producer.ts";
import { Reconnect } from "./reconnect.ts";
import { Stream } from "./stream.ts";
import { StreamRegistry } from "./streamRegistry.ts";
import { after } from "./timers.ts";

/** What who leaves waits at most to hear that a reply was refused. */
const WORD_MS = 250;

export class Link {
  readonly registry = new StreamRegistry();
  readonly backlog: Backlog;
  readonly ackHandler: AckHandler;
  readonly reconnect: Reconnect;
  /** Events after a terminal, or on a stream that is gone: not sent. */
  lateEvents = 0;
  /** walld is switched off (WALLD_ENABLED=0). */
  readonly isOff: boolean;

  private socket: Socket | null = null;
  private isConnected = false;
  private descriptor = NONE;
  private isFlowing = false;
  private isShut: boolean;
  /** The daemon was frozen: wait for its Welcome before anything is said to it. */
  private isWary = false;
  private stallTimer: NodeJS.Timeout | undefined;
  private timer: NodeJS.Timeout | undefined;
  private nextDrain = 1;
  private readonly flushers = new Set<() => void>();
  private readonly onWritten = (): void => this.settle();

  /** locate: null where walld is switched off: then nothing is ever sent or held. */
  constructor(locate: (() => string) | null, backlogBytesMax: number) {
    this.isOff = this.isShut = locate === null;
    this.backlog = new Backlog(backlogBytesMax, (stream) => this.registry.tidy(stream));
    this.ackHandler = new AckHandler(this.registry);
    this.reconnect = new Reconnect(locate ?? (() => ""), backlogBytesMax);
  }

  /** There is a connection, as far as is known. */
  get connected(): boolean {
    return this.isConnected;
  }

  /** And it has let this process in. */
  get isWelcome(): boolean {
    return this.isConnected && this.ackHandler.isWelcome;
  }

  // --- events ---

  /** Open a stream. Its Start is on its way when this returns. */
  begin(start: Fields): Stream {
    const stream = new Stream(nextStreamNumber(), start);
    if (this.isShut) {
      stream.gone = true;
      return stream;
    }
    this.registry.add(stream);
    this.event(stream, "Start", start);
    if (this.socket === null) this.later();
    return stream;
  }

  /** The stream's next event; its seq. The caller has looked whether it is late. */
  event(stream: Stream, name: MessageName, fields: Fields): number {
    const seq = stream.nextSeq;
    const frame = encodeFrame(name, { stream: stream.number, seq, ...fields });
    this.put(heldFrame(stream, TAGGED[name][0], seq, 1, frame));
    return seq;
  }

  /** The stream's next event, plain text without info. */
  text(stream: Stream, tag: number, text: string | Buffer): number {
    const seq = stream.nextSeq;
    this.put(heldText(stream, tag, seq, text));
    return seq;
  }

  private put(held: Held): void {
    const stream = held.stream!;
    stream.nextSeq += 1;
    if (this.isFlowing) {
      if (held.seq === 0) stream.introduced = true;
      this.backlog.remember(held);
      if (!this.send(held)) {
        this.backlog.unsend();
        this.isFlowing = false;
      }
    } else {
      this.backlog.hold(held);
    }
    if (this.backlog.isFull) {
      this.backlog.trim();
      if (this.backlog.makeRoom()) {
        this.reconnect.tell("the memory for events is full, the oldest are dropped");
      }
    }
  }

  /** End a stream as its answer ended, where that failed or was cut. False: nothing such is known. */
  fail(stream: Stream): boolean {
    const ending = stream.isLate ? undefined : stream.unfinished?.ending;
    if (ending === undefined) return false;
    stream.terminal = true;
    this.event(stream, ending.name, ending.fields);
    return true;
  }

  /** The program leaves: nothing that failed or was cut is asked for again. */
  failAll(): void {
    for (const stream of [...this.registry.byNumber.values()]) this.fail(stream);
  }

  /** A Reply object is gone. One that never ended was abandoned. */
  leave(stream: Stream): void {
    stream.owned = false;
    if (!this.fail(stream) && !stream.isLate) {
      stream.terminal = true;
      this.event(stream, "End", { clean: false, reason: "abandoned" });
    }
    this.registry.tidy(stream);
  }

  /** The application's copy is safe; 0 where that was said before. RangeError before a terminal. */
  release(stream: Stream): number {
    if (!stream.isLate) {
      throw new RangeError(
        `reply '${stream.streamId}' has not ended; call end(), cancel() or error() first`,
      );
    }
    if (stream.released || stream.gone) {
      this.lateEvents += 1;
      return 0;
    }
    stream.released = true;
    const seq = this.event(stream, "Release", {});
    const isWanted = stream.turnId !== null; // its messages go to the session of its turn
    if (!stream.introduced && !isWanted) {
      // No daemon has heard of it and none needs to: what waits of it is never sent.
      stream.gone = true;
    }
    this.registry.tidy(stream);
    return seq;
  }

  /**
   * To be called once the session is deleted, with what was said of it up to here: no daemon is given any of that
   * again, a restarted one neither; what had not ended may still go on, behind it.
   */
  leaving(sessionId: string): () => void {
    const said = this.registry.ofSession(sessionId).map((one) => ({ one, seq: one.nextSeq - 1, ended: one.terminal }));
    return () => {
      for (const { one, seq, ended } of said) {
        one.synced = Math.max(one.synced, seq);
        one.deletedTo = seq;
        if (!ended) continue;
        one.released = true;
        one.gone = true;
        this.registry.tidy(one);
      }
    };
  }

  // --- waiting ---

  /** All that was sent so far is at `level`. False: not within `timeoutMs`. */
  drain(level: Level, timeoutMs: number): Promise<boolean> {
    const id = this.nextDrain;
    this.nextDrain += 1;
    return new Promise((resolve) => {
      const timer = after(timeoutMs, () => {
        this.ackHandler.drains.delete(id);
        resolve(false);
      });
      const done = (reached: boolean): void => {
        clearTimeout(timer);
        resolve(reached);
      };
      this.ackHandler.drains.set(id, { level, done });
      this.holdDrain(id, level);
      this.hurry();
    });
  }

  /**
   * Resolves once the kernel has everything, or once it is clear that nobody is there. Who flushes is
   * about to leave, maybe sooner than the next attempt would be due: one is made now.
   */
  flush(timeoutMs: number): Promise<boolean> {
    if (this.backlog.isClear) return Promise.resolve(true);
    this.hurry();
    return new Promise((resolve) => {
      const told = (): void => {
        const isHopeless = this.socket === null && this.reconnect.connections === 0;
        if (!this.backlog.isClear && !isHopeless && !this.isShut) return;
        clearTimeout(timer);
        this.flushers.delete(told);
        resolve(this.backlog.isClear);
      };
      const timer = after(timeoutMs, () => {
        this.flushers.delete(told);
        resolve(this.backlog.isClear);
      });
      this.flushers.add(told);
      told();
    });
  }

  /**
   * Who leaves may have begun replies that a daemon refuses: where it has not said a word to one, it is asked
   * for one, and heard until it has said all, or WORD_MS are over.
   */
  async hearWhetherBegun(timeoutMs: number): Promise<void> {
    const isUnheard = [...this.registry.byNumber.values()].some((stream) => stream.isUnheard);
    if (this.isConnected && isUnheard) await this.drain("written", Math.min(timeoutMs, WORD_MS));
  }

  /** End the connection for good. What waits is given up. */
  shut(): void {
    this.isShut = true;
    clearTimeout(this.timer);
    for (const stream of this.registry.byNumber.values()) stream.gone = true;
    for (const drain of this.ackHandler.drains.values()) drain.done(false);
    this.ackHandler.drains.clear();
    this.socket?.destroy();
    this.lost();
  }

  private holdDrain(id: number, level: Level): void {
    const frame = encodeFrame("Drain", { id, level });
    this.isFlowing = false;
    this.backlog.hold(heldFrame(null, TAGGED.Drain[0], 0, 0, frame));
    this.pump();
  }

  // --- the socket ---

  /** Somebody waits for what is held, and a daemon is there: do not wait for the next attempt. */
  hurry(): void {
    if (this.isConnected) return;
    this.reconnect.hurry();
    this.dial();
  }

  /** Connect, if nobody is connected. Never throws: who is not there is tried again. */
  dial(): void {
    if (this.socket !== null || this.isShut) return;
    clearTimeout(this.timer);
    let socket: Socket;
    try {
      socket = connect({ path: this.reconnect.next() }); // by that name: "9" alone were a port
    } catch (error) {
      this.failed(error as NodeJS.ErrnoException);
      return;
    }
    this.socket = socket;
    socket.unref(); // must not keep a program alive; linkRegistry.ts flushes when it ends
    let reason: NodeJS.ErrnoException | undefined;
    socket.on("connect", () => this.greet(socket));
    socket.on("data", (received: Buffer) => this.hear(socket, received));
    socket.on("error", (error) => (reason = error));
    socket.on("end", () => socket.destroy());
    socket.on("close", () => {
      if (this.socket !== socket) return;
      if (!this.isConnected && reason !== undefined) this.failed(reason);
      else this.lost();
    });
  }

  private greet(socket: Socket): void {
    if (this.socket !== socket) return;
    this.isConnected = true;
    this.descriptor = descriptorOf(socket);
    this.reconnect.connections += 1;
    this.ackHandler.start();
    const hello = helloFrame(this.ackHandler.log, this.ackHandler.syncedNo);
    const taken = writeFirst(socket, hello);
    if (taken < 0) return;
    const isTaken = taken === hello.length || this.write(hello.subarray(taken));
    if (isTaken && !this.isWary) this.resume();
  }

  /** Say what of the connection before is still open, then all that waits. */
  private resume(): void {
    this.isWary = false;
    const frames = resumeFrames(this.registry.byNumber.values());
    if (frames.length === 0 || this.write(Buffer.concat(frames))) this.pump();
  }

  /** Hand the kernel what waits, as far as it takes it at once. */
  private pump(): void {
    if (!this.isConnected || this.isWary || this.socket?.writableLength !== 0) return;
    for (let chunk = this.backlog.take(); chunk !== null; chunk = this.backlog.take()) {
      if (!this.write(chunk)) return;
      this.backlog.taken();
    }
    this.isFlowing = true;
    this.tellFlushers();
  }

  /** A frame, with nothing before it. As `write`. */
  private send(held: Held): boolean {
    const canTake = this.descriptor !== NONE && !this.socket!.destroyed;
    const taken = canTake ? writeNow(this.descriptor, held) : 0;
    return taken === held.length || this.write(bytesOf(held).subarray(taken));
  }

  /** True where the kernel has all of it; else `settle` is called when it has. */
  private write(bytes: Buffer): boolean {
    const socket = this.socket!;
    socket.write(bytes, this.onWritten);
    if (socket.writableLength === 0 && socket.errored === null && !socket.destroyed) return true;
    clearTimeout(this.stallTimer);
    this.stallTimer = setTimeout(() => {
      this.isWary = true;
      socket.destroy();
    }, STALL_MS);
    this.stallTimer.unref();
    return false;
  }

  /** The socket has written something: if that was all of it, go on. */
  private settle(): void {
    if (this.isFlowing || !this.isConnected) return;
    const socket = this.socket!;
    if (socket.writableLength !== 0 || socket.errored !== null || socket.destroyed) return;
    clearTimeout(this.stallTimer);
    this.backlog.taken();
    this.pump();
  }

  private hear(socket: Socket, received: Buffer): void {
    if (this.socket !== socket) return;
    const { ackHandler } = this;
    ackHandler.feed(received);
    this.backlog.trim();
    if (ackHandler.fatal !== "") socket.destroy();
    else if (ackHandler.isWelcome) {
      this.reconnect.welcomed();
      if (this.isWary) this.resume();
    }
  }

  private failed(error: NodeJS.ErrnoException): void {
    this.socket = null;
    this.reconnect.backOff();
    if (!this.backlog.isClear) {
      this.reconnect.tell(`it cannot be reached: ${error.message} (errno ${error.errno ?? "none"})`);
    }
    this.later();
  }

  /** The connection is of no use any more: what is not synced waits for the next one. */
  private lost(): void {
    this.socket = null;
    this.isConnected = this.isFlowing = false;
    clearTimeout(this.stallTimer);
    this.backlog.rewind(this.registry.byNumber.values());
    this.backlog.dropDrains();
    for (const [id, drain] of this.ackHandler.drains) this.holdDrain(id, drain.level);
    this.reconnect.backOff(this.ackHandler.fatal === "version" ? VERSION_BACKOFF_MS : 0);
    this.later();
  }

  /** Try again when it is time, where there is something to deliver. */
  private later(): void {
    this.tellFlushers();
    const isNeeded = this.registry.byNumber.size > 0 || this.backlog.holdsAny;
    if (this.isShut || !isNeeded) return;
    if (this.reconnect.waitMs === 0) {
      this.dial();
      return;
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.dial(), this.reconnect.waitMs);
    this.timer.unref();
  }

  private tellFlushers(): void {
    for (const told of [...this.flushers]) told();
  }
}

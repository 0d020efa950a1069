/** The backlog against a model of it, over thousands of seeded histories. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Backlog } from "#dist/link/backlog.js";
import { Deque } from "#dist/link/deque.js";
import { bytesOf, folded, heldFrame, heldText, sizeOf, type Held } from "#dist/link/eventFrames.js";
import { Stream } from "#dist/link/stream.js";
import { decodeBody } from "#dist/wire/codec.js";
import { Splitter, encodeFrame } from "#dist/wire/framing.js";
import { TAGGED, type MessageName } from "#dist/wire/messages.js";

const ALL = Object.keys(TAGGED) as MessageName[];

/** A generator of small numbers, the same for the same seed. */
function dice(seed: number): (bound: number) => number {
  let state = seed * 2_654_435_761 + 1;
  return (bound) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor(state / 8) % bound;
  };
}

function event(stream: Stream, name: MessageName, fields: Record<string, unknown>): Held {
  const seq = stream.nextSeq;
  stream.nextSeq += 1;
  if (name === "Token") return heldText(stream, 3, seq, fields["text"] as Buffer);
  return heldFrame(stream, TAGGED[name][0], seq, 1, encodeFrame(name, { stream: stream.number, seq, ...fields }));
}

function begun(number: number): Stream {
  return new Stream(number, { stream_id: `s${number}`, session_id: "x" });
}

/** What a daemon that keeps everything it is sent has: stream number -> seqs. */
class Kept {
  readonly seqs = new Map<number, Set<number>>();

  take(bytes: Buffer): void {
    const last = new Map<number, number>();
    for (const body of new Splitter().feed(bytes)) {
      const word = decodeBody(body, ALL);
      if (word.is === "Drain") continue;
      const [number, seq] = [word["stream"] as number, word["seq"] as number];
      const count = word.is === "Run" ? (word["lengths"] as Uint8Array).filter((one) => one < 0x80).length : 1;
      assert.ok(seq > (last.get(number) ?? -1), "a stream's frames leave in the order of their seqs");
      last.set(number, seq + count - 1);
      const seqs = this.seqs.get(number) ?? new Set();
      this.seqs.set(number, seqs);
      for (let at = seq; at < seq + count; at += 1) seqs.add(at);
    }
  }
}

test("whatever happens to the connection, every event arrives that was not dropped", () => {
  let drops = 0;
  for (let seed = 1; seed <= 400; seed += 1) {
    const next = dice(seed);
    const isSmall = seed % 2 === 0;
    const backlog = new Backlog(isSmall ? 40_000 : 10_000_000, () => undefined);
    const streams = Array.from({ length: 3 }, (_, n) => begun(n + 1));
    const kept = new Kept();
    for (const stream of streams) backlog.hold(event(stream, "Start", stream.start));
    let outgoing: Buffer | null = null;
    for (let step = 0; step < 300; step += 1) {
      const stream = streams[next(3)]!;
      const what = next(20);
      if (what < 13) {
        const name = (["Token", "Token", "Token", "Step", "Reasoning"] as const)[next(5)]!;
        const held = event(stream, name, name === "Step" ? {} : { text: Buffer.alloc(next(400)) });
        if (backlog.isClear && next(2) === 0) {
          backlog.remember(held);
          if (next(3) === 0) backlog.unsend(), (outgoing = bytesOf(held));
          else kept.take(bytesOf(held));
        } else backlog.hold(held);
        if (isSmall) backlog.makeRoom();
      } else if (what < 16) {
        if (outgoing === null) outgoing = backlog.take();
        if (outgoing !== null && next(4) > 0) {
          kept.take(outgoing);
          backlog.taken();
          outgoing = null;
        }
      } else if (what < 18) {
        const seqs = kept.seqs.get(stream.number) ?? new Set();
        const top = Math.max(-1, ...seqs);
        if (stream.taken >= 0) stream.synced = Math.max(stream.synced, Math.min(top, next(top + 2)));
        backlog.trim();
      } else if (what === 18) {
        backlog.rewind(streams);
        outgoing = null;
      } else {
        backlog.hold(heldFrame(null, 18, 0, 0, encodeFrame("Drain", { id: 1, level: "written" })));
      }
      if (isSmall) backlog.makeRoom();
      assert.ok(backlog.heldBytes >= backlog.waitingBytes && backlog.waitingBytes >= 0);
      assert.ok(backlog.waitingEvents >= 0);
    }
    backlog.rewind(streams);
    backlog.dropDrains();
    for (let chunk = backlog.take(); chunk !== null; chunk = backlog.take()) {
      kept.take(chunk);
      backlog.taken();
    }
    let missing = 0;
    for (const stream of streams) {
      const seqs = kept.seqs.get(stream.number) ?? new Set();
      for (let seq = 0; seq < stream.nextSeq; seq += 1) missing += seqs.has(seq) ? 0 : 1;
      if (!stream.gone) assert.equal(stream.taken, stream.nextSeq - 1);
    }
    if (!isSmall) assert.equal(missing, 0, `seed ${seed}`);
    assert.ok(missing <= backlog.droppedEvents, `seed ${seed}: ${missing} missing, ${backlog.droppedEvents} dropped`);
    drops += backlog.droppedEvents;
    for (const stream of streams) stream.synced = stream.nextSeq - 1;
    backlog.trim();
    assert.deepEqual([backlog.heldBytes, backlog.waitingBytes, backlog.waitingEvents], [0, 0, 0], `seed ${seed}`);
    assert.ok(!backlog.holdsAny);
  }
  assert.ok(drops > 0, "some ring was full");
});

test("what a full ring never drops: where a reply begins and how it ends", () => {
  const backlog = new Backlog(20_000, () => undefined);
  const stream = begun(1);
  backlog.hold(event(stream, "Start", stream.start));
  for (let n = 0; n < 500; n += 1) {
    backlog.hold(event(stream, "Custom", { kind: "k", payload: Buffer.alloc(100) }));
    backlog.makeRoom();
  }
  backlog.hold(event(stream, "End", { clean: true }));
  backlog.makeRoom();
  assert.ok(backlog.heldBytes <= 20_000);
  const sent = new Splitter().feed(Buffer.concat([backlog.take()!])).map((body) => decodeBody(body, ALL));
  assert.equal(sent[0]!.is, "Start");
  const rest: typeof sent = [];
  for (backlog.taken(); ; backlog.taken()) {
    const chunk = backlog.take();
    if (chunk === null) break;
    rest.push(...new Splitter().feed(chunk).map((body) => decodeBody(body, ALL)));
  }
  assert.equal([...sent, ...rest].at(-1)!.is, "End");
  assert.ok(backlog.droppedEvents > 300);
});

test("waiting text folds, and nothing else does", () => {
  const [one, two] = [begun(1), begun(2)];
  const text = (stream: Stream, told: string) => event(stream, "Token", { text: Buffer.from(told) });
  const held = [text(one, "a"), text(two, "x"), text(one, ""), event(one, "Step", {}), text(one, "b"), text(two, "y"), text(two, "z".repeat(1025)), text(one, "c".repeat(200))];
  const told = folded(held).map((each) => [each.stream!.number, each.tag, each.seq, each.count]);
  assert.deepEqual(told, [[1, 5, 0, 2], [2, 5, 0, 2], [1, 9, 2, 1], [1, 5, 3, 2], [2, 3, 2, 1]]);
  const run = decodeBody(bytesOf(folded(held)[3]!).subarray(4), ["Run"]);
  assert.deepEqual(Buffer.from(run["lengths"] as Uint8Array), Buffer.from([1, 0xc8, 1]));
  assert.ok(sizeOf(held[0]!) > held[0]!.length);
});

test("a deque is a queue at both ends", () => {
  const deque = new Deque<number>();
  const model: number[] = [];
  const next = dice(7);
  for (let n = 0; n < 50_000; n += 1) {
    const what = next(n % 10_000 < 6_000 ? 5 : 3);
    if (what === 0) assert.equal(deque.shift(), model.shift());
    else if (what === 1) assert.equal(deque.pop(), model.pop());
    else deque.push(n), model.push(n);
    assert.equal(deque.length, model.length);
    assert.equal(deque.first, model[0]);
  }
  assert.deepEqual([...deque], model);
  deque.clear();
  assert.equal(deque.shift(), undefined);
});

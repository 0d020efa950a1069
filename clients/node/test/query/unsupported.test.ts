/** What the daemon's build lacks: Unsupported, with the verb and the version, and the client goes on. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import { encode } from "@msgpack/msgpack";
import { Refused, Turn, Unsupported, connect, type Client } from "walld-client";

import type { Query } from "#dist/query/query.js";
import type { Fields } from "#dist/wire/codec.js";
import { Splitter, encodeFrame } from "#dist/wire/framing.js";
import { Daemon } from "../support/daemon.js";

function requests(client: Client): Query {
  return client["query"] as unknown as Query;
}

/** A daemon of a build that says this of each request, behind these views of the first ones: that has no other than Hello. */
function lacking(t: TestContext, answer: Fields, ...views: object[]): Client {
  const folder = mkdtempSync(join(tmpdir(), "walld-"));
  const path = join(folder, "s");
  const server = createServer((peer) => {
    const splitter = new Splitter();
    let hellos = 0;
    peer.on("error", () => undefined);
    peer.on("data", (received: Buffer) => {
      for (const _ of splitter.feed(received)) {
        hellos += 1;
        const limits = { frame_bytes_max: 1 << 20, text_bytes_max: 1 << 19 };
        if (hellos === 1) {
          peer.write(encodeFrame("Welcome", { version: 1, daemon: "0.0.9", log: new Uint8Array(16), ...limits }));
        } else if (hellos - 2 < views.length) {
          const chunk = encode(Buffer.from(JSON.stringify(views[hellos - 2])));
          peer.write(encodeFrame("Answer", { id: hellos - 1, chunk, last: true, receipt: new Uint8Array(0) }));
        } else {
          peer.write(encodeFrame("Error", { message: "this request cannot be read", ...answer }));
        }
      }
    });
  });
  server.listen(path);
  const client = connect(path, { timeoutMs: 20_000 });
  t.after(async () => {
    await client.close();
    server.close();
    rmSync(folder, { recursive: true });
  });
  return client;
}

function isUnsupported(verb: string, version: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof Unsupported && error instanceof Refused, String(error));
    assert.equal(error.verb, verb);
    assert.match(error.version, version);
    assert.match(error.message, /does not know .*: update the older of client and daemon/);
    return true;
  };
}

test("a view that the daemon does not know", async (t) => {
  const daemon = await Daemon.started(t);
  const client = daemon.client();
  await client.session("s").append("x");
  const asked = requests(client).ask("Project", { session_id: "s", name: "horoscope" });
  await assert.rejects(asked, isUnsupported("Project horoscope", /^\d+\.\d+\.\d+/));
  assert.equal(await client.recover("nothing"), null);
});

test("a request whose tag the daemon does not know", async (t) => {
  const got = "tag 49: Invalid value 49";
  const client = lacking(t, { id: 1, code: "bad_request", got, limit: "a request of tag 50 to 62" });
  const asked = requests(client).ask("HasPartial", { session_id: "s" });
  await assert.rejects(asked, isUnsupported("HasPartial", /^0\.0\.9$/));
});

test("one that 0.1.0 ends the connection for", async (t) => {
  const client = lacking(t, { id: 0, code: "malformed", got: "tag 49: Invalid value 49", limit: "a msgpack array" });
  const asked = requests(client).ask("HasPartial", { session_id: "s" });
  await assert.rejects(asked, isUnsupported("HasPartial", /^0\.0\.9$/));
});

test("what cannot be read of a request that is known stays a Refused", async (t) => {
  const limit = "HasPartial(id, session_id, seen)";
  const client = lacking(t, { id: 1, code: "bad_request", got: "tag 49: Expected str", limit });
  const asked = requests(client).ask("HasPartial", { session_id: "s" });
  await assert.rejects(asked, (error) => error instanceof Refused && !(error instanceof Unsupported));
});

test("an argument of a view that the daemon does not know is Unsupported, another is a mistake", async (t) => {
  const answer = { id: 1, code: "bad_argument", got: "messages", limit: "format | branch | compacted" };
  const since = lacking(t, { ...answer, message: "argument unknown cannot be used" });
  const session = since.session("s");
  await assert.rejects(session.messages({ unknown: "drop" }), isUnsupported("Project messages", /^0\.0\.9$/));
  const paged = lacking(t, { ...answer, message: "argument last cannot be used" }).session("s");
  await assert.rejects(paged.messages({ last: 1 }), isUnsupported("Project messages", /^0\.0\.9$/));
  const mistaken = lacking(t, { ...answer, message: "argument knowing cannot be used" });
  await assert.rejects(mistaken.session("s").project("messages", { knowing: 1 }), (error) => {
    return error instanceof Refused && !(error instanceof Unsupported) && error.code === "bad_argument";
  });
});

test("a daemon that cannot explain", async (t) => {
  const answer = { id: 1, code: "unknown_projection", got: "explain", limit: "audit | resume" };
  await assert.rejects(lacking(t, answer).session("s").explain(), isUnsupported("Project explain", /^0\.0\.9$/));
});

test("a daemon that knows no children: it would keep them unread, and nothing is appended", async (t) => {
  const answer = { id: 2, code: "unknown_projection", got: "child", limit: "audit | resume" };
  const call = { call_id: "k", turn: "t", stream: null, may: "run", why: "x", settled: null };
  const joined = lacking(t, answer, { calls: [call] }).session("p").child("c", { callId: "k" });
  await assert.rejects(joined, isUnsupported("Project child", /^0\.0\.9$/));
});

test("a gate that knows no policy: who settles, resumes or grants is told, and nothing is appended", async (t) => {
  const answer = { code: "bad_argument", got: "resume", limit: "workspace", message: "argument policy cannot be used" };
  const isOld = isUnsupported("Project resume", /^0\.0\.9$/);
  const old = () => lacking(t, { ...answer, id: 1 }).session("s"); // its first request is the only one answered
  await assert.rejects(old().resumeCheck({ policy: {} }), isOld);
  const made = Turn as unknown as new (...given: unknown[]) => Turn;
  const turn = new made(old()["log"], assert.fail, { turnId: "t", messageId: "m", streamIds: [], state: "submitted" });
  await assert.rejects(turn.approval("c", "granted", { expiresAt: new Date() }), isOld);
});

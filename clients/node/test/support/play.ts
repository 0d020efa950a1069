/** Plays `clients/vectors/scenario.json` with this client, as `play.py` beside it does: SOCKET SESSION FROM. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { Blocked, Refused, connect, type Reply, type Session, type Turn } from "walld-client";

import { PACKAGE } from "./daemon.js";

type Step = [call: string, given: unknown[], options: Record<string, unknown>];
type Calls = Record<string, (...given: unknown[]) => unknown>;

class Player {
  private readonly session: Session;
  private turn: Turn | undefined;
  private reply: Reply | undefined;
  private child: Session | undefined;
  /** The child's turn. */
  private task: Turn | undefined;

  private constructor(session: Session) {
    this.session = session;
  }

  /** With all but a reply found again. */
  static async of(session: Session): Promise<Player> {
    const player = new Player(session);
    player.turn = await newestTurn(session);
    for (const { payload } of await session.find("child", { last: 1 })) {
      const of = payload["of"] as { call_id: string; turn: string };
      player.child = await session.child(payload["session"] as string, { callId: of.call_id, turn: of.turn });
      player.task = await newestTurn(player.child);
    }
    return player;
  }

  async play([call, given, options]: Step): Promise<void> {
    const [subject, verb] = call.split(".") as ["session" | "turn" | "reply" | "child" | "task", string];
    const on = this[subject] as unknown as Calls | undefined;
    if (on === undefined) return;
    const { $given = [], ...named } = this.meant(options) as Record<string, unknown>;
    const inWords = Object.fromEntries(Object.entries(named).map(([name, one]) => this.option(name, one)));
    const taken = [...(this.meant(given) as unknown[]), ...($given as unknown[])];
    const made = await on[camel(verb)]!(...taken, ...(Object.keys(inWords).length > 0 ? [inWords] : []));
    if (verb === "submit" || verb === "resume") this[subject === "child" ? "task" : "turn"] = made as Turn;
    if (verb === "child") this.child = made as Session;
    if (verb === "reply") this.reply = made as Reply;
    await this.reply?.drain({ timeoutMs: 10_000 });
  }

  private option(name: string, value: unknown): [string, unknown] {
    if (name === "expires_at") return ["expiresAt", new Date((value as number) * 1000)];
    return [camel(name), value];
  }

  private meant(value: unknown): unknown {
    if (value === "$turn") return this.turn!.turnId;
    if (value === "$task") return this.task!.turnId;
    if (value === "$child" || value === "$fork" || value === "$stream") return `${this.session.sessionId}-${value.slice(1)}`;
    if (Array.isArray(value)) return value.map((one) => this.meant(one));
    if (typeof value !== "object" || value === null) return value;
    const { $bytes, $repeat } = value as { $bytes?: string; $repeat?: [string, number] };
    if ($bytes !== undefined) return Buffer.from($bytes);
    if ($repeat !== undefined) return $repeat[0].repeat($repeat[1]);
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, this.meant(one)]));
  }
}

function camel(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

async function newestTurn(session: Session): Promise<Turn | undefined> {
  const turns = ((await session.state()) as { turns: { turn_id: string }[] } | null)?.turns ?? [];
  const newest = turns.at(-1)?.turn_id;
  return newest === undefined ? undefined : session.turn(newest);
}

const [socket, sessionId, first] = process.argv.slice(2) as [string, string, string];
const text = readFileSync(join(PACKAGE, "../vectors/scenario.json"), "utf8");
const { steps } = JSON.parse(text) as { steps: Step[] };
const client = connect(socket, { timeoutMs: 30_000 });
const player = await Player.of(client.session(sessionId));
let at = Number(first);
for await (const _ of createInterface({ input: process.stdin })) {
  try {
    await player.play(steps[at]!);
    console.log("ok");
  } catch (error) {
    if (!(error instanceof Refused || error instanceof Blocked)) throw error;
    console.log(error.name, error instanceof Refused ? error.code : "");
  }
  at += 1;
  if (at === steps.length) break;
}
await client.close();

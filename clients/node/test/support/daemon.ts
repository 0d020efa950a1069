/**
 * Starts, stops and kills a real daemon and programs for the tests.
 *
 * Owns: one `walld serve` at a time on one data directory, and child processes. The daemon is
 * WALLD_COMMAND, else the repository's own .venv/bin/walld, which `make` makes. Refuses: mocks.
 */

import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { connect, type Client } from "walld-client";

export const PACKAGE = fileURLToPath(new URL("../../../", import.meta.url));
const OWN = join(PACKAGE, "../../.venv/bin/walld");
/** Only how long something broken may keep a test waiting; no test passes by it. */
const PATIENCE_MS = 30_000;

delete process.env["WALLD_SOCKET"];
delete process.env["WALLD_DATA"];
delete process.env["WALLD_ENABLED"];
process.env["WALLD_APP"] = "tests"; // what a test and the programs it starts say is of one

/** Wait until `condition` gives something true; that. */
export async function until<T>(condition: () => T | Promise<T>, what: string): Promise<NonNullable<T>> {
  const deadline = performance.now() + PATIENCE_MS;
  for (;;) {
    const value = await condition();
    if (value) return value as NonNullable<T>;
    if (performance.now() > deadline) throw new Error(`never came: ${what}`);
    await sleep(5);
  }
}

/** A test, or `{ after }` of node:test for all tests of a file. */
export interface Scope {
  after(done: () => Promise<void>): void;
}

export class Daemon {
  readonly home = mkdtempSync(join(tmpdir(), "walld-node-"));
  readonly socket = join(this.home, "s");
  readonly data = join(this.home, "data");
  private process: ChildProcess | undefined;
  private readonly clients: Client[] = [];

  constructor(t: Scope) {
    t.after(() => this.remove());
  }

  static async started(t: Scope, ...options: string[]): Promise<Daemon> {
    const daemon = new Daemon(t);
    await daemon.start(...options);
    return daemon;
  }

  private static command(): string {
    return process.env["WALLD_COMMAND"] ?? OWN;
  }

  /** Any other command of walld, about this one. */
  walld(...words: string[]): string {
    return execFileSync(Daemon.command(), [...words, "--socket", this.socket], { encoding: "utf8" });
  }

  /** Run it, and wait until it answers. */
  async start(...options: string[]): Promise<void> {
    const command = Daemon.command();
    if (!existsSync(command)) {
      throw new Error(`no daemon to test against: ${command}; run make test-node, or set WALLD_COMMAND`);
    }
    const log = openSync(join(this.home, "log"), "a");
    const told = ["serve", "--data", this.data, "--socket", this.socket, ...options];
    this.process = spawn(command, told, { stdio: ["ignore", "ignore", log] });
    const probe = connect(this.socket);
    await until(async () => {
      if (this.process?.exitCode !== null) throw new Error(`the daemon ended: see ${this.home}/log`);
      const status = await probe.status().catch(() => ({ state: "away" }));
      return status["state"] === "ok";
    }, "a daemon that answers");
    await probe.close();
  }

  /** SIGKILL. */
  async kill(): Promise<void> {
    if (this.process === undefined) return;
    this.process.kill("SIGKILL");
    await once(this.process, "exit");
    this.process = undefined;
  }

  /** SIGSTOP, SIGCONT. */
  signal(name: "SIGSTOP" | "SIGCONT"): void {
    this.process!.kill(name);
  }

  /** A client of this process, closed when the test ends. */
  client(options: Parameters<typeof connect>[1] = {}): Client {
    const client = connect(this.socket, options);
    this.clients.push(client);
    return client;
  }

  private async remove(): Promise<void> {
    for (const client of this.clients) await client.close();
    await this.kill();
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** A program of its own: `file` is a module below build/, told its arguments; its lines are read as they come. */
export class Program {
  readonly lines: string[] = [];
  readonly process: ChildProcess;
  private stderrText = "";

  /** runner: the command that runs it, where that is not this very Node. */
  constructor(
    file: string,
    args: readonly string[],
    env: NodeJS.ProcessEnv = {},
    [command, ...words]: readonly [string, ...string[]] = [process.execPath],
  ) {
    const path = join(PACKAGE, "build", file);
    this.process = spawn(command, [...words, path, ...args], {
      stdio: ["pipe", "pipe", "pipe"],
      env: { ...process.env, ...env },
    });
    createInterface({ input: this.process.stdout! }).on("line", (line) => this.lines.push(line));
    this.process.stderr!.on("data", (text: Buffer) => (this.stderrText += text.toString()));
  }

  get stderr(): string {
    return this.stderrText;
  }

  /** Wait for a line that begins so; the rest of it. */
  async line(start: string): Promise<string> {
    const found = await until(() => {
      const line = this.lines.find((one) => one.startsWith(start));
      if (line === undefined && this.process.exitCode !== null) {
        throw new Error(`the program ended: ${this.stderrText}`);
      }
      return line ?? "";
    }, `a line ${start}`);
    return found.slice(start.length).trim();
  }

  /** Its exit code, or the signal that ended it. */
  async ended(): Promise<number | string> {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      await once(this.process, "close");
    }
    return this.process.exitCode ?? this.process.signalCode ?? "";
  }
}

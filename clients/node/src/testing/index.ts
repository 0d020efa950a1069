/**
 * Starts a daemon for tests: `walld serve` on a directory, ready when `startDaemon` returns.
 *
 * Owns: which command is run, the socket, the log and the wait; `kill()`, `restart()`, `stop()` and `close()` of
 * what it started. Refuses: what is said to the daemon (`connect(daemon.socket)`).
 *
 * The daemon has a session of its own: a Ctrl-C at the terminal ends the tests and not, before them, the daemon.
 */

import { spawn, type ChildProcess } from "node:child_process";
import { closeSync, existsSync, fstatSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { connect } from "../client.ts";
import { WalldError } from "../errors.ts";

const SOCKET_PATH_BYTES_MAX = 107; // sun_path holds 108 bytes with its NUL
const START_MS = 20_000;
const STOP_MS = 30_000;
const POLL_MS = 10;
const SHOWN_LINES = 10;

export interface DaemonOptions {
  /** The data directory; else one that is made, and removed by `close()`. */
  dir?: string;
  /** Where it listens, at most 107 bytes; else in a folder that is made. */
  socket?: string;
  /** More options of `walld serve`. */
  options?: readonly string[];
  /** The program, with its first arguments; else WALLD_COMMAND, or `walld` of PATH. */
  command?: readonly string[];
  /** Its whole environment; else this process's, without settings of walld (WALLD_*). */
  env?: Readonly<Record<string, string | undefined>>;
  /** Until when it must answer. */
  timeoutMs?: number;
}

/** No daemon answers: there is no such command, it has ended, or it took too long. */
export class NotStarted extends WalldError {
  override name = "NotStarted";
  /** What it ended with, a number or a signal's name; null where it did not end by itself. */
  readonly exitCode: number | string | null;
  /** The last lines that it logged. */
  readonly log: string;

  constructor(message: string, exitCode: number | string | null = null, log = "") {
    super(log ? `${message}: ${log}` : message);
    this.exitCode = exitCode;
    this.log = log;
  }
}

/** A daemon on one data directory; `await using` closes it at the end. */
export class Daemon {
  /** The path to connect to. */
  readonly socket: string;
  /** The data directory. */
  readonly dir: string;
  readonly logPath: string;
  private readonly folder: string;
  private readonly command: readonly string[];
  private readonly given: DaemonOptions;
  private process: ChildProcess | undefined;
  private gone: Promise<number | string> | undefined;
  private code: number | string | undefined;

  /** @internal */
  constructor(folder: string, command: readonly string[], given: DaemonOptions) {
    this.folder = folder;
    this.command = command;
    this.given = given;
    this.dir = resolve(given.dir ?? join(folder, "data"));
    this.socket = resolve(given.socket ?? join(folder, "s"));
    this.logPath = join(folder, "log");
  }

  /** Of the process; undefined once it was ended here. */
  get pid(): number | undefined {
    return this.process?.pid;
  }

  /** All that its log has, also of those that ran before it. */
  get log(): string {
    return existsSync(this.logPath) ? readFileSync(this.logPath, "utf8") : "";
  }

  /** SIGKILL, and wait until it is gone. Does nothing where it has ended. */
  async kill(): Promise<void> {
    this.process?.kill("SIGKILL");
    await this.gone;
    this.process = undefined;
  }

  /**
   * SIGTERM, and wait for its exit code; 0 is an end at which all was written and synced. After `timeoutMs` it is
   * killed. null: it was ended here before.
   */
  async stop(timeoutMs = STOP_MS): Promise<number | string | null> {
    if (this.process === undefined) return null;
    this.process.kill("SIGTERM");
    const late = setTimeout(() => this.process?.kill("SIGKILL"), timeoutMs);
    const code = await this.gone;
    clearTimeout(late);
    this.process = undefined;
    return code ?? null;
  }

  /** Stop it, and remove what was made for it: its log, and the socket and directory that nobody named. */
  async close(): Promise<void> {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** The next daemon on the same directory and socket, ready; one that runs is stopped before. Throws NotStarted. */
  async restart(timeoutMs = START_MS): Promise<void> {
    await this.stop();
    await this.start(timeoutMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal */
  async start(timeoutMs: number): Promise<void> {
    mkdirSync(this.folder, { recursive: true, mode: 0o700 });
    const log = openSync(this.logPath, "a", 0o600);
    const from = fstatSync(log).size;
    const [program, ...first] = this.command;
    const words = [...first, "serve", "--data", this.dir, "--socket", this.socket, ...(this.given.options ?? [])];
    const env = this.given.env ?? ownEnvironment();
    const child = spawn(program!, words, { stdio: ["ignore", "ignore", log], env: { ...env }, detached: true });
    closeSync(log);
    let failed: Error | undefined;
    this.code = undefined;
    this.process = child;
    this.gone = new Promise((done) => {
      child.once("error", (error) => {
        failed = error;
        done("");
      });
      child.once("exit", (code, signal) => done((this.code = code ?? signal ?? "")));
    });
    const probe = connect(this.socket, { timeoutMs: 1000 });
    const deadline = performance.now() + timeoutMs;
    const lines = (): string => {
      const text = readFileSync(this.logPath).subarray(from).toString().trim();
      return text.split("\n").slice(-SHOWN_LINES).join("\n") || "it logged nothing";
    };
    try {
      for (;;) {
        const now = await probe.status().catch(() => undefined);
        if (failed !== undefined) throw new NotStarted(`cannot run ${program}: ${failed.message}`);
        if (this.code !== undefined) {
          throw new NotStarted(`walld serve on ${this.dir} ended at its start with ${this.code}`, this.code, lines());
        }
        if (now !== undefined && this.isOurs(now) && now["state"] !== "recovering") return;
        if (performance.now() > deadline) {
          const text = `walld serve on ${this.dir} does not answer at ${this.socket} within ${timeoutMs} ms`;
          throw new NotStarted(text, null, lines());
        }
        await sleep(POLL_MS);
      }
    } catch (error) {
      if (failed === undefined) await this.kill();
      this.process = undefined;
      throw error;
    } finally {
      await probe.close();
    }
  }

  /** Not another one at the same socket, or of the same directory: ours leads its session, also below a wrapper. */
  private isOurs(status: Record<string, unknown>): boolean {
    try {
      const stat = readFileSync(`/proc/${String(status["pid"])}/stat`, "utf8");
      const session = stat.slice(stat.lastIndexOf(")") + 2).split(" ")[3];
      return Number(session) === this.pid;
    } catch {
      return false;
    }
  }
}

/**
 * Start `walld serve` and wait until it answers. Throws NotStarted where it does not (then nothing of it is left
 * running), RangeError for a socket path that is too long.
 */
export async function startDaemon(given: DaemonOptions = {}): Promise<Daemon> {
  if (given.socket !== undefined) checkLength(resolve(given.socket));
  const command = given.command ?? [foundCommand()];
  const own = join(tmpdir(), "walld-XXXXXX", "s");
  const base = Buffer.byteLength(own) <= SOCKET_PATH_BYTES_MAX ? tmpdir() : "/tmp";
  const folder = mkdtempSync(join(base, "walld-"));
  const daemon = new Daemon(folder, command, given);
  try {
    await daemon.start(given.timeoutMs ?? START_MS);
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    throw error;
  }
  return daemon;
}

function checkLength(path: string): void {
  const length = Buffer.byteLength(path);
  if (length > SOCKET_PATH_BYTES_MAX) {
    const text = `a socket's path has at most ${SOCKET_PATH_BYTES_MAX} bytes, ${path} has ${length}`;
    throw new RangeError(`${text}: name a shorter one`);
  }
}

function foundCommand(): string {
  const given = process.env["WALLD_COMMAND"];
  if (given) return given;
  for (const folder of (process.env["PATH"] ?? "").split(delimiter)) {
    if (folder && existsSync(join(folder, "walld"))) return join(folder, "walld");
  }
  throw new NotStarted("walld is not installed: not in PATH; pip install walld, or set WALLD_COMMAND");
}

function ownEnvironment(): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("WALLD_")));
}

/**
 * Fingerprints a workspace: commit, changes, hashes of chosen files, as the Python client does.
 *
 * Owns: reading git without starting it where that is simple (HEAD, loose and packed refs, worktrees), asking it
 * where no commit is found so (`reftable`), and hashing. Refuses: comparing (the resume gate of the daemon does),
 * anything that changes a file.
 *
 * What cannot be known is null, never a guess: a file that is not there or cannot be read has no hash, and without
 * git nobody says whether the tree is dirty. Where it is, `changes` has every file that git lists, with its hash, and
 * without git every file that `files` does not name; nothing at all where one of them cannot be known or they are too
 * many, for half of them would look like all. `kinds` says which are a "link" or an "executable".
 */

import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { lstat, open, readFile, readdir, readlink, realpath, stat } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";

import { GIT_MS, PAYLOAD_BYTES_MAX, WORKSPACE_BYTES_MAX } from "../limits.ts";
import { inPieces } from "./truncation.ts";

type Hashes = Record<string, string | null>;

/** What a workspace is; kinds only where there are changes. */
export interface Fingerprint {
  root: string | null;
  head: string | null;
  branch: string | null;
  dirty: boolean | null;
  changes: Hashes | null;
  files: Hashes;
  kinds?: Record<string, string>;
}

const CHUNK_BYTES = 1024 * 1024;
const COMMIT = /^[0-9a-f]{40}([0-9a-f]{24})?$/;
/** A symbolic ref may name another one, not for ever. */
const REFS_MAX = 5;
/** What HEAD names in a tree whose refs are not files (`git init --ref-format=reftable`). */
const ELSEWHERE = ".invalid";
const CHANGES_MAX = 500;
/** What is hashed of a dirty tree at most, and how many bytes of its names an entry holds. */
const CHANGES_BYTES_MAX = 256 * 1024 * 1024;
const NAMES_BYTES_MAX = 32 * 1024;
const GIT_OUTPUT_BYTES_MAX = 64 * 1024 * 1024;
/** What git tells the hooks that it runs, and all that they start: which tree is theirs. */
const OTHER_TREE = [
  ...["GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"],
  ...["GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"],
];

/** files: paths as they are named; a relative one is looked for below `root`. */
export async function workspaceFingerprint(root: string, files: readonly string[] = []): Promise<Fingerprint> {
  const folder = await gitFolder(root);
  let [head, branch] = folder === null ? [null, null] : await headOf(folder);
  if (folder !== null && head === null) [head, branch] = await askedHead(root, branch);
  const listed = folder === null ? null : await listedBy(root);
  let seen: Seen | null = null;
  if (folder === null) seen = await others(root, files);
  else if (listed !== null && listed.length > 0) seen = await changesOf(root, listed);
  const found: Fingerprint = {
    root: folder === null ? null : await real(root),
    head,
    branch,
    dirty: listed === null ? null : listed.length > 0,
    changes: seen === null ? null : seen.changes,
    files: await fileHashes(files, root),
  };
  return seen === null ? found : { ...found, kinds: seen.kinds };
}

/**
 * It as fingerprints that an entry holds each, the last one with all but the files' hashes. Whoever compares takes
 * the files of all of them, and the rest of the last.
 */
export function fingerprintPieces(found: Fingerprint): object[] {
  if (sizeOf(found) <= PAYLOAD_BYTES_MAX / 2) return [found];
  return [...filePieces(found.files).map((files) => ({ part: true, files })), { ...found, files: {} }];
}

/** Hashes as tables of which each has room in an entry beside what else is there. */
export function filePieces(files: Readonly<Hashes>): Hashes[] {
  return inPieces(Object.entries(files), PAYLOAD_BYTES_MAX / 2).map((piece) => Object.fromEntries(piece));
}

/** No request holds it. */
export function isLong(now: object): boolean {
  return sizeOf(now) > WORKSPACE_BYTES_MAX;
}

/**
 * `now` without the files that are as `known` has them, which is what the log says up to the entry `asOf`; where the
 * others are too many for a request, `more` says how many are left out.
 */
export function differing(now: object, known: Readonly<Hashes>, asOf: string): Record<string, unknown> {
  const given = (now as { files?: unknown }).files;
  const files = (typeof given === "object" && given !== null ? given : {}) as Hashes;
  const others = Object.keys({ ...known, ...files }).filter(
    (path) => !Object.hasOwn(known, path) || (files[path] ?? null) !== known[path],
  );
  const told = { ...now, files: {}, as_of: asOf };
  let left = WORKSPACE_BYTES_MAX - sizeOf(told);
  const fitting: [string, string | null][] = [];
  for (const path of others) {
    const hash = files[path] ?? null;
    left -= sizeOf({ [path]: hash });
    if (left < 0) break;
    fitting.push([path, hash]);
  }
  const more = others.length - fitting.length;
  return { ...told, files: Object.fromEntries(fitting), ...(more === 0 ? {} : { more }) };
}

/** The SHA-256 of each file by the path it was named by; null where it cannot be read. */
export async function fileHashes(files: readonly string[], root = ""): Promise<Hashes> {
  const found: [string, string | null][] = [];
  for (const path of files) found.push([path, await hashOf(root === "" ? path : resolve(root, path))]);
  return Object.fromEntries(found); // whatever a file is called: `__proto__` too
}

interface Seen {
  changes: Hashes;
  kinds: Record<string, string>;
}

function sizeOf(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}

async function hashOf(path: string | Buffer): Promise<string | null> {
  const hash = createHash("sha256");
  try {
    // A pipe must not be waited for, nor a device read to its end.
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      if (!(await file.stat()).isFile()) return null;
      const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
      for (;;) {
        const { bytesRead } = await file.read(buffer, 0, CHUNK_BYTES, null);
        if (bytesRead === 0) break;
        hash.update(buffer.subarray(0, bytesRead));
      }
    } finally {
      await file.close();
    }
  } catch {
    return null;
  }
  return hash.digest("hex");
}

// --- git ---

/** Where git keeps what it knows of the tree that `root` lies in. */
async function gitFolder(root: string): Promise<string | null> {
  for (let folder = await real(root); ; folder = dirname(folder)) {
    const git = join(folder, ".git");
    const found = await stat(git).catch(() => null);
    if (found?.isDirectory()) return git;
    if (found?.isFile()) {
      // A worktree or a submodule names it.
      const named = ((await readText(git)) ?? "").replace(/^gitdir:/, "").trim();
      return named === "" ? null : resolve(folder, named);
    }
    if (folder === dirname(folder)) return null;
  }
}

/** The commit and the branch; no branch where HEAD is a commit, no commit on a new branch. */
async function headOf(folder: string): Promise<[string | null, string | null]> {
  let [ref, branch]: [string, string | null] = ["HEAD", null];
  for (let at = 0; at < REFS_MAX; at += 1) {
    const value = await refOf(folder, ref);
    if (value === null || !value.startsWith("ref:")) {
      return [value !== null && COMMIT.test(value) ? value : null, branch];
    }
    ref = value.slice("ref:".length).trim();
    branch ??= ref.replace(/^refs\/heads\//, "");
  }
  return [null, branch];
}

/** The same as git says it; what HEAD itself names says nothing where the refs are elsewhere. */
async function askedHead(root: string, branch: string | null): Promise<[string | null, string | null]> {
  const commit = (await git(root, "rev-parse", "--verify", "--quiet", "HEAD"))?.toString("latin1").trim();
  let named = branch;
  if (branch === ELSEWHERE) {
    const ref = (await git(root, "symbolic-ref", "--quiet", "HEAD"))?.toString("utf8").trim() ?? "";
    named = ref.replace(/^refs\/heads\//, "") || null;
  }
  return [commit !== undefined && COMMIT.test(commit) ? commit : null, named];
}

/** What a ref says: its own file, else that of the main tree, else the packed ones. */
async function refOf(folder: string, name: string): Promise<string | null> {
  const shared = resolve(folder, (await readText(join(folder, "commondir"))) ?? ".");
  for (const place of [folder, shared]) {
    const value = await readText(join(place, name));
    if (value !== null) return value;
  }
  for (const line of ((await readText(join(shared, "packed-refs"))) ?? "").split("\n")) {
    const space = line.indexOf(" ");
    if (space >= 0 && line.slice(space + 1) === name) return line.slice(0, space);
  }
  return null;
}

async function readText(path: string): Promise<string | null> {
  return readFile(path, "utf8").then((text) => text.trim(), () => null);
}

/** What `git status` lists, from the top of the tree; null where it does not say. */
async function listedBy(root: string): Promise<Buffer[] | null> {
  const every = ["--untracked-files=all", "--ignore-submodules=none"]; // whatever its configuration says
  const told = await git(root, "status", "--porcelain", "-z", ...every);
  if (told === null) return null;
  const pieces = split(told);
  const found: Buffer[] = [];
  for (let at = 0; at < pieces.length; at += 1) {
    const piece = pieces[at]!;
    if (piece.length === 0) continue;
    found.push(piece.subarray(3));
    // The name it had follows.
    if (/[RC]/.test(piece.toString("latin1", 0, 2))) found.push(pieces[(at += 1)] ?? Buffer.alloc(0));
  }
  return found;
}

/** Between NULs. */
function split(told: Buffer): Buffer[] {
  const pieces: Buffer[] = [];
  let from = 0;
  for (let at = told.indexOf(0); at >= 0; at = told.indexOf(0, from)) {
    pieces.push(told.subarray(from, at));
    from = at + 1;
  }
  return [...pieces, told.subarray(from)];
}

/** The hash of each file that is listed, and its kind; null where one cannot be known. */
async function changesOf(root: string, listed: Buffer[]): Promise<Seen | null> {
  if (listed.length > CHANGES_MAX) return null;
  const told = await git(root, "rev-parse", "--show-toplevel");
  return told === null ? null : hashed(root, told.toString("utf8").replace(/\n$/, ""), listed);
}

/** The same of every file and link below that is not named; null also where a folder cannot be read. */
async function others(root: string, named: readonly string[]): Promise<Seen | null> {
  const top = await real(root);
  const passed = new Set(named.map((one) => relative(top, resolve(top, one))));
  const folders = [Buffer.alloc(0)];
  const listed: Buffer[] = [];
  const slash = Buffer.from("/");
  for (const within of folders) {
    const place = Buffer.concat([Buffer.from(top), slash, within]);
    const entries = await readdir(place, { withFileTypes: true, encoding: "buffer" }).catch(() => null);
    if (entries === null) return null;
    for (const one of entries) {
      const path = within.length === 0 ? one.name : Buffer.concat([within, slash, one.name]);
      if (one.isDirectory()) folders.push(path);
      else if (!passed.has(path.toString()) && (one.isSymbolicLink() || one.isFile())) listed.push(path);
      if (folders.length + listed.length > CHANGES_MAX) return null;
    }
  }
  return hashed(root, top, listed.sort(Buffer.compare));
}

async function hashed(root: string, top: string, listed: Buffer[]): Promise<Seen | null> {
  if (listed.reduce((sum, one) => sum + one.length, 0) > NAMES_BYTES_MAX) return null;
  const below = await real(root);
  const changes = new Map<string, string | null>();
  const kinds = new Map<string, string>();
  let left = CHANGES_BYTES_MAX;
  for (const bytes of listed) {
    const name = bytes.toString("utf8");
    if (!Buffer.from(name).equals(bytes)) return null; // a name that is no UTF-8
    const path = join(top, name);
    const named = relative(below, path) || ".";
    try {
      const facts = await lstat(path);
      left -= facts.size;
      if (facts.isSymbolicLink()) {
        const target = await readlink(path, { encoding: "buffer" });
        changes.set(named, createHash("sha256").update(target).digest("hex"));
        kinds.set(named, "link");
        continue;
      }
      const hash = left >= 0 ? await hashOf(path) : null;
      if (hash === null) return null;
      changes.set(named, hash);
      if ((facts.mode & constants.S_IXUSR) !== 0) kinds.set(named, "executable"); // all of its mode that git knows
    } catch (error) {
      if (!["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) return null;
      changes.set(named, null);
    }
  }
  return { changes: Object.fromEntries(changes), kinds: Object.fromEntries(kinds) };
}

/** Without links, as far as it is there. */
async function real(path: string): Promise<string> {
  return realpath(path).catch(() => resolve(path));
}

/**
 * What git prints, null where it fails. Nothing is written, and of the programs that the tree's own configuration
 * names its filters alone are run: without them git does not know what differs.
 */
function git(root: string, ...words: string[]): Promise<Buffer | null> {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !OTHER_TREE.includes(name)));
  const args = ["--no-optional-locks", "-c", "core.fsmonitor=false", "-C", root, ...words];
  const how = { env, timeout: GIT_MS, maxBuffer: GIT_OUTPUT_BYTES_MAX, encoding: "buffer" } as const;
  return new Promise((settle) => {
    execFile("git", args, how, (error, stdout) => settle(error === null ? stdout : null));
  });
}

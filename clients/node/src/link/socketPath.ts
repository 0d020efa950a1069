/**
 * Finds the daemon's socket, and looks at who can put one in its place.
 *
 * Owns: the order of the candidates, the check of the one that lies in a shared directory, and that
 * of the way to a socket. Refuses: connecting.
 *
 * A folder below the temporary directory could have been put there by another user before us, who
 * would then be told all our agents say. So it counts only if it is a directory (not a link), ours,
 * and closed to everybody else.
 *
 * Node does not tell who listens at a socket (SO_PEERCRED). So before each connect the folders and
 * links on its way are looked at: who can change none of them cannot put his own in its place.
 */

import { lstatSync, readFileSync, readlinkSync, type Stats } from "node:fs";
import { dirname, isAbsolute, join } from "node:path";

/** Where a socket may be, in this order, unless the program or WALLD_SOCKET names it. */
export function socketCandidates(env: NodeJS.ProcessEnv, uid: number): string[] {
  const runtime = env["XDG_RUNTIME_DIR"] ?? "";
  const given = env["TMPDIR"] ?? "";
  const temporary = isAbsolute(given) ? given : "/tmp";
  return [
    ...(isAbsolute(runtime) ? [join(runtime, "walld", "walld.sock")] : []),
    "/run/walld/walld.sock",
    join(temporary, `walld-${uid}`, "walld.sock"),
  ];
}

/**
 * The socket to connect to now. Asked again at every attempt: a daemon may appear later.
 *
 * The first candidate that exists; else the first one whose folder could be made. Throws where all
 * there is lies in a folder that somebody else controls.
 */
export function findSocket(given: string | undefined): string {
  const named = given || process.env["WALLD_SOCKET"];
  if (named) return named;
  const uid = process.geteuid!();
  const candidates = socketCandidates(process.env, uid);
  const perUid = candidates.at(-1)!;
  let isUnsafe = false;
  for (const path of candidates) {
    if (statusOf(path) === undefined) continue;
    if (path !== perUid || isPrivate(dirname(path), uid)) return path;
    isUnsafe = true;
  }
  if (isUnsafe) {
    throw new Error(
      `${dirname(perUid)} is not a directory that only uid ${uid} can use, its socket is not ` +
        "trusted; remove it or set WALLD_SOCKET",
    );
  }
  const possible = candidates.find((path) => statusOf(dirname(dirname(path)))?.isDirectory());
  return possible ?? candidates[0]!;
}

/** A real directory of `uid` with no permission for anybody else. */
export function isPrivate(folder: string, uid: number): boolean {
  const status = statusOf(folder);
  return (
    status !== undefined && status.isDirectory() && status.uid === uid && (status.mode & 0o077) === 0
  );
}

function statusOf(path: string): Stats | undefined {
  return lstatSync(path, { throwIfNoEntry: false });
}

const OTHERS_WRITE = 0o022;
const STICKY = 0o1000;
const UNMAPPED_UID = 65534;
const LINKS_MAX = 40;

/** A folder or a link on the way, or what the path names at last; `found` is its own (lstat). */
interface Step {
  path: string;
  found: Stats;
}

/**
 * Throws EPERM where others than root and this user can put a socket in the place of this one.
 *
 * WALLD_SOCKET_UID is trusted like them, and so is a user to whom one of them gave the socket's folder.
 * What is not there is left to connect(2), which says so.
 */
export function checkWay(path: string): void {
  let steps: Step[];
  try {
    steps = walk(path);
  } catch (error) {
    const { syscall, message } = error as NodeJS.ErrnoException;
    if (syscall !== undefined) return;
    throw denied(`its folders cannot be looked at: ${message}`);
  }
  const folder = dirname(steps.at(-1)!.path);
  let isShared = false; // anybody may make a folder, or a socket, here
  let owner: number | undefined; // another user, whose folder it is
  for (const { path: where, found } of steps.slice(0, -1)) {
    const { uid, mode } = found;
    const isLink = found.isSymbolicLink();
    if (!isLink && (mode & OTHERS_WRITE) !== 0) {
      if ((mode & STICKY) === 0) refuse(path, where, found);
      isShared = true;
    }
    if (isTrusted(uid)) continue;
    if (where === folder && !isLink && !isShared) owner = uid;
    else if (where === folder || !isUnmapped(uid)) refuse(path, where, found);
  }
  const { path: where, found } = steps.at(-1)!;
  if (isShared && !isTrusted(found.uid)) refuse(path, where, found);
  if (owner !== undefined && found.uid !== owner && !isTrusted(found.uid)) refuse(path, where, found);
}

/** From "/" on, all that leads elsewhere when it is replaced (path_resolution(7)). */
function walk(path: string): Step[] {
  let here = "/"; // without a link in it
  const steps = [{ path: here, found: lstatSync(here) }];
  const left = (isAbsolute(path) ? path : `${process.cwd()}/${path}`).split("/").reverse();
  for (let links = 0; left.length > 0; ) {
    const name = left.pop()!;
    if (name === "" || name === ".") continue;
    if (name === "..") {
      here = dirname(here);
      continue;
    }
    const there = join(here, name);
    const found = lstatSync(there);
    steps.push({ path: there, found });
    if (!found.isSymbolicLink()) {
      here = there;
      continue;
    }
    links += 1;
    if (links > LINKS_MAX) throw Object.assign(new Error("ELOOP"), { syscall: "lstat" }); // as connect(2) says
    const target = readlinkSync(there);
    if (isAbsolute(target)) here = "/";
    left.push(...target.split("/").reverse());
  }
  return steps;
}

function isTrusted(uid: number): boolean {
  return uid === 0 || uid === process.geteuid!() || String(uid) === process.env["WALLD_SOCKET_UID"];
}

/** It stands for whoever has no uid in this user namespace: root outside of it, or anybody. */
function isUnmapped(uid: number): boolean {
  if (uid !== UNMAPPED_UID) return false;
  try {
    const all = readFileSync("/proc/self/uid_map", "latin1").trim().split(/\s+/).join(" ");
    return all !== "0 0 4294967295";
  } catch {
    return true;
  }
}

function refuse(path: string, where: string, found: Stats): never {
  const mode = (found.mode & 0o7777).toString(8).padStart(4, "0");
  const text =
    `${where} is of uid ${found.uid}, mode ${mode}, this process is uid ${process.geteuid!()}: others than root ` +
    `and this user could put a socket at ${path}, nothing was sent; name walld's socket, or set ` +
    "WALLD_SOCKET_UID where another user's daemon is to be told all";
  throw denied(text);
}

/** As connect(2) would refuse it: callers treat it like a daemon that is not there. */
function denied(text: string): Error {
  return Object.assign(new Error(text), { code: "EPERM", errno: -1, syscall: "connect" });
}

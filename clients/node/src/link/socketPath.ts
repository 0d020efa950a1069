/**
 * Finds the daemon's socket.
 *
 * Owns: the order of the candidates and the check of the one that lies in a shared directory.
 * Refuses: connecting.
 *
 * A folder below the temporary directory could have been put there by another user before us, who
 * would then be told all our agents say. So it counts only if it is a directory (not a link), ours,
 * and closed to everybody else.
 */

import { lstatSync, type Stats } from "node:fs";
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

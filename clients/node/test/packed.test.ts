/** The package as `npm pack` makes it: installed, and the README's code compiled strictly against it. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { PACKAGE } from "./support/daemon.js";

/** What the README's code takes for given. */
const GIVEN = `
import { connect } from "walld-client";
import { wrapLanguageModel } from "ai";
declare const model: (prompt: string) => AsyncIterable<string>;
declare const save: (message: object) => void;
declare const provider: (name: string) => Parameters<typeof wrapLanguageModel>[0]["model"];
const client = connect();
const reply = client.reply("chat-1");
`;
const STRICT = {
  target: "ES2022", module: "NodeNext", strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true,
  noPropertyAccessFromIndexSignature: true, noImplicitOverride: true, noEmit: true, types: ["node"],
};

function run(cwd: string, command: string, ...args: string[]): string {
  const told = spawnSync(command, args, { cwd, encoding: "utf8" });
  assert.equal(told.status, 0, told.stdout + told.stderr);
  return told.stdout;
}

/** A program of somebody who has installed nothing else: no types of Node's. */
const BARE = `
import { connect, type Level, type PartialReply } from "walld-client";
export { walldMiddleware, walldSseSink } from "walld-client/ai";
export { startDaemon } from "walld-client/testing";
const level: Level = "synced";
export async function main(): Promise<PartialReply | null> {
  await using client = connect();
  using reply = client.reply("s");
  await reply.drain({ level });
  await (await client.session("s").submit("hi")).completed();
  return client.recover("s");
}
`;

test("the README's code, typed in, against the package that is packed", (t) => {
  const home = mkdtempSync(join(tmpdir(), "walld-packed-"));
  t.after(() => rmSync(home, { recursive: true }));
  const modules = join(home, "node_modules");
  const own = join(modules, "walld-client");
  mkdirSync(own, { recursive: true });
  for (const name of readdirSync(join(PACKAGE, "node_modules"))) {
    symlinkSync(join(PACKAGE, "node_modules", name), join(modules, name));
  }
  run(PACKAGE, "npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", home);
  run(home, "tar", "xf", "walld-client-0.2.0-dev.0.tgz", "-C", own, "--strip-components=1");
  const { scripts } = JSON.parse(readFileSync(join(own, "package.json"), "utf8")) as { scripts: object };
  for (const name of ["preinstall", "install", "postinstall", "prepare"]) {
    assert.ok(!(name in scripts), `npm asks people before it runs ${name} of what they install`);
  }
  const blocks = [...readFileSync(join(own, "README.md"), "utf8").matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code!);
  assert.ok(blocks.length >= 3);
  blocks.forEach((code, at) => {
    const given = GIVEN.split("\n").filter((line) => {
      const name = /^(?:declare )?const (\w+)/.exec(line)?.[1] ?? (line.includes('"walld-client"') ? "connect" : "");
      return name === "" || !new RegExp(`(const|import \\{) ${name}\\b`).test(code);
    });
    writeFileSync(join(home, `readme${at}.ts`), `${given.join("\n")}\n${code}export {};\n`);
  });
  writeFileSync(join(home, "package.json"), '{"type":"module"}');
  writeFileSync(join(home, "tsconfig.json"), JSON.stringify({ compilerOptions: STRICT, include: ["*.ts"] }));
  const tsc = join(PACKAGE, "node_modules/typescript/bin/tsc");
  const told = spawnSync(process.execPath, [tsc, "-p", "."], { cwd: home, encoding: "utf8" }).stdout;
  assert.doesNotMatch(told, /^(readme|node_modules\/walld-client|error)/m); // ai's own types are not that strict
  const bare = { ...STRICT, types: [] };
  writeFileSync(join(home, "bare.ts"), BARE);
  writeFileSync(join(home, "tsconfig.json"), JSON.stringify({ compilerOptions: bare, files: ["bare.ts"] }));
  run(home, process.execPath, tsc, "-p", ".");
  const names = run(home, process.execPath, "--input-type=module", "-e", `
    console.log(Object.keys(await import("walld-client")).includes("connect"), Object.keys(await import("walld-client/ai")));`);
  assert.match(names, /^true \[ 'walldMiddleware', 'walldSseSink' \]/);
});

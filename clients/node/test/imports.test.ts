/** The imports of src/, those of types too: they go from upper packages to lower ones, without circles. */

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join, normalize } from "node:path";
import { test } from "node:test";

import { PACKAGE } from "./support/daemon.js";

const SRC = join(PACKAGE, "src");
/** Lowest first; those of one row do not import each other. */
const LAYERS = [
  ["errors.ts", "limits.ts"],
  ["wire"],
  ["encoding"],
  ["link"],
  ["query", "reply", "recovered"],
  ["session", "ai"],
  ["client.ts"],
  ["index.ts"],
  ["testing"],
];

const files = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
const imports = new Map(files.map((file) => [file, importsOf(file)]));

function importsOf(file: string): string[] {
  const code = readFileSync(join(SRC, file), "utf8");
  return [...code.matchAll(/(?:\bfrom|\bimport) *\(? *"(\.[^"]+)"/g)].map(([, path]) => normalize(join(file, "..", path!)));
}

function layerOf(file: string): number {
  const layer = LAYERS.findIndex((names) => names.includes(file.split("/")[0]!));
  assert.notEqual(layer, -1, `${file} is in no layer: name its package in LAYERS`);
  return layer;
}

test("a package imports from lower ones only", () => {
  assert.ok(files.length > 40);
  for (const [file, others] of imports) {
    for (const other of others) {
      assert.ok(imports.has(other), `${file} imports ${other}, which is not there`);
      const isWithin = file.includes("/") && file.split("/")[0] === other.split("/")[0];
      assert.ok(isWithin || layerOf(other) < layerOf(file), `${file} imports ${other}, which is not below it`);
    }
  }
});

test("no file imports itself by way of others", () => {
  const left = new Map(imports);
  for (let before = -1; before !== left.size; ) {
    before = left.size;
    for (const [file, others] of left) if (!others.some((other) => left.has(other))) left.delete(file);
  }
  assert.deepEqual([...left.keys()], [], "these import each other, or files that do");
});

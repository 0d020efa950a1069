/** Each shape of a tree that pi writes, judged by its own code: `piJudge.ts` says what is compared, and what differs. */

import assert from "node:assert/strict";
import { after } from "node:test";

import { judge } from "./piJudge.js";
import { LINES, SHAPES } from "./piTrees.js";
import { Daemon } from "../support/daemon.js";

const trees = { ...LINES, ...SHAPES };
assert.ok(Object.keys(trees).length >= 20);
judge(await Daemon.started({ after }), trees);

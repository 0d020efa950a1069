/** Random trees of pi's, judged by its own code as `piJudge.ts` says. */

import { after } from "node:test";

import { judge } from "./piJudge.js";
import { random } from "./piTrees.js";
import { Daemon } from "../support/daemon.js";

const SEEDS = 10;
const STEPS = 30;

const seeds = Array.from({ length: SEEDS }, (_, seed) => seed);
judge(await Daemon.started({ after }), Object.fromEntries(seeds.map((seed) => [`random ${seed}`, random(seed, STEPS)])));

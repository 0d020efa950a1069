/** What pi's entries hold, judged by its own code as `piJudge.ts` says. */

import { after } from "node:test";

import { judge } from "./piJudge.js";
import { CONTENTS } from "./piTrees.js";
import { Daemon } from "../support/daemon.js";

judge(await Daemon.started({ after }), CONTENTS);

/** A task that may be killed anywhere: what the log has is not done again, and the gate judges what may have been. */
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { connect } from "walld-client";

const [file = "done.txt"] = process.argv.slice(2);
const client = connect();
const session = client.session("release-1");
if ((await session.find("turn_completed")).length > 0) process.exit();
const isThere = (step: string) => existsSync(file) && readFileSync(file, "utf8").split("\n").includes(step);
const gate = await session.resumeCheck();
const open = gate?.calls.filter((one) => one.may === "check_then_run").map((one) => one.call_id) ?? [];
const checked = Object.fromEntries(open.map((step) => [step, isThere(step) ? "ran" : "did_not_run"] as const));
const turn = await (gate ? session.resume({ checked }) : session.submit("Release it.", { calls: "journal" }));
const told = [...(await session.find("tool_finished")), ...(await session.find("tool_settled"))];
const ran = told.filter((one) => one.payload["word"] !== "did_not_run").map((one) => one.payload["of"] ?? one.payload);
for (const step of ["build", "upload", "announce"]) {
  if (ran.some((call) => (call as { call_id: string }).call_id === step)) continue;
  await turn.intent(step, { file }, { sideEffect: "external-write", resumePolicy: "rerun-after-check", callId: step });
  await turn.toolStarted(step);
  await sleep(20, appendFileSync(file, `${step}\n`));
  await turn.toolFinished(step, "done");
}
await turn.completed();
await client.close();

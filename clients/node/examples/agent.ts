/** The `ai` package: a run with a tool, recorded by middleware. MODEL_URL speaks chat completions. */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { jsonSchema, stepCountIs, streamText, tool, wrapLanguageModel } from "ai";
import { connect } from "walld-client";
import { walldMiddleware } from "walld-client/ai";

import { save } from "./store.ts";

const reply = connect().reply("agent-1");
const provider = createOpenAICompatible({ name: "local", baseURL: process.env["MODEL_URL"]! });
const model = wrapLanguageModel({
  model: provider(process.env["MODEL"] ?? "tool"),
  middleware: walldMiddleware(reply),
});
const weather = tool({
  inputSchema: jsonSchema<{ city: string }>({ type: "object" }),
  execute: ({ city }) => `4 degrees in ${city}`,
});
const run = streamText({ model, prompt: "weather?", tools: { weather }, stopWhen: stepCountIs(5) });
for await (const text of run.textStream) process.stdout.write(text);
save({ role: "assistant", content: await run.text, _wal_stream: reply.streamId });
reply.end(await run.finishReason);

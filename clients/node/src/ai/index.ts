/** For the `ai` package: middleware for language models, and a sink for UI message streams. */

export { walldMiddleware } from "./middleware.ts";
export type { WalldMiddleware } from "./middleware.ts";
export { walldSseSink } from "./sse.ts";

/**
 * Tells of which class an error of a model's call is, by the words that the Python client goes by and one of the SDK's.
 *
 * Owns: the table of words. Refuses: where an error has its words (`modelSaid.ts`).
 */

import type { ModelFacts } from "../reply/modelChecks.ts";

export type ErrorClass = NonNullable<ModelFacts["errorClass"]>;

const LOOKED_AT_CHARS = 1024;
const CONTEXT_LENGTH = ["contextlength", "contextwindow", "promptistoolong", "prompttoolong", "maximumcontext"];
/** In this order: a part of a kind of error, in small letters without signs, says its class. */
const CLASS_BY_PART: readonly [ErrorClass, readonly string[]][] = [
  ["rate_limit", ["ratelimit", "toomanyrequest", "quota", "throttl", "resourceexhausted"]],
  ["context_length", CONTEXT_LENGTH],
  ["content_filter", ["contentfilter", "contentpolicy", "refusal", "safety", "guardrail"]],
  ["timeout", ["timeout", "timedout", "deadline"]],
  ["cancelled", ["cancel", "abort", "keyboardinterrupt"]],
  ["invalid_output", ["invalidoutput", "outputpars", "modelbehavior", "malformed", "jsondecode", "notjson"]],
  [
    "provider",
    [
      ...["provider", "overloaded", "servererror", "serverdisconnected", "unavailable"],
      ...["badgateway", "connect", "network", "readerror", "incompleteread", "remoteprotocol"],
      ...["apierror", "apistatus", "noterminalevent", "finishreasonerror", "responsefailed"],
      "apicallerror", // the SDK's, where its provider said nothing that tells more
    ],
  ],
];

/**
 * The class of an error, by its kinds and codes, the first that tells; `other` for none.
 *
 * message: providers say there alone that a prompt was too long.
 */
export function errorClassOf(kinds: readonly unknown[], message = ""): ErrorClass {
  for (const kind of kinds) {
    const word = typeof kind === "string" ? letters(kind) : "";
    const found = CLASS_BY_PART.find(([, parts]) => parts.some((part) => word.includes(part)));
    if (found !== undefined) return found[0];
  }
  const said = letters(message);
  return CONTEXT_LENGTH.some((part) => said.includes(part)) ? "context_length" : "other";
}

function letters(text: string): string {
  return text.slice(0, LOOKED_AT_CHARS).toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
}

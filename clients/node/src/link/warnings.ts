/**
 * Warnings of the client: `process.on("warning")` receives them, and Node prints them on stderr.
 *
 * Owns: their type, `WalldWarning`. Refuses: when something is worth one.
 */

/** One line for the people who run the program. */
export function warn(text: string): void {
  process.emitWarning(text, "WalldWarning");
}

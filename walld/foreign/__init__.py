"""Session files of other agents, read into what a session's ledger takes; and out again.

The formats: gptme, pi, claude (Claude Code), codex. Pure: lines come in, entries go out.
"""

"""Replies folded from records, merged, and judged: whole, partial, and why."""

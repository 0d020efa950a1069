"""The way to disk and back: flush, write, sync, compaction, partials, reads of a reply."""

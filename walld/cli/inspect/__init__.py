"""Commands that read a data directory without its daemon: fsck, salvage, dump, repair."""

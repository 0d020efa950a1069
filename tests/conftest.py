"""Makes what the tests share (`wal_files.py`) importable from each of them."""

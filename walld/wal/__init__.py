"""The bytes of the write-ahead log: layout, encoding, scan, index, verdict on damage."""

"""Planted bugs: bytes that do not add up, and what they are called."""

from __future__ import annotations

from .mutant import WAL, Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        "a hole is taken for the end of the log",
        WAL + "scan.py",
        "            found = self._search(position + BATCH_ALIGNMENT)\n",
        "            found = self.facts.size\n",
        "C3",
        "178",
    ),
    Mutant(
        "the CRC of a payload is not checked",
        WAL + "scan.py",
        "    if len(payload) != header.payload_bytes or crc32(payload) != header.payload_crc:\n"
        "        return False, None\n",
        "    if len(payload) != header.payload_bytes:\n        return False, None\n",
        "C2",
        "1891",
    ),
    Mutant(
        "the CRC of a header is not checked",
        WAL + "layout.py",
        "    if crc != _crc.unpack_from(data, _batch.size)[0]:\n"
        "        return None\n"
        "    magic, kind",
        "    magic, kind",
        "C2",
        "94",
    ),
    Mutant(
        "the CRC of a record is not checked when it is read alone",
        WAL + "records.py",
        "    if not check_body(stream_no, body):\n",
        "    if len(body) < BODY_CRC_BYTES:\n",
        "P9",
        "1891",
    ),
    Mutant(
        "what is missing above W is called corrupt",
        WAL + "verdict.py",
        "            split = min(last, self._proven(first))\n",
        "            split = min(last, self._last_no)\n",
        "V1",
        "1891",
    ),
    Mutant(
        "what is missing up to W is called torn",
        WAL + "verdict.py",
        "            if first <= split:\n",
        "            if last < self._base_no:\n",
        "V1",
        "10",
    ),
)

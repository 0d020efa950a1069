"""Measures of how the code is built, each of which may only get better.

`make gauges` prints them; `recorded/values.json` holds what was recorded last. A test fails when
one is worse than that, and when one is better and not recorded yet.

Owns: reading the tree, the measures, the comparison, the record.
Refuses: a judgement of what the code does: the other tests have that.

A new measure: a pure function over what `source_tree.py` reads, a test on a small tree where it is
red, and an entry in `measures.py`.
"""

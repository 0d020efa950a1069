"""What a user would take instead of walld, and the question of what each costs an agent a token.

Owns: the list of the peers, by key, and `measure` of the question `peers`. Refuses: peers that do
something else than record a token: each says by count() how many can be read back.
"""

from bench.peers.costs import measure
from bench.peers.known import PEERS

__all__ = ["PEERS", "measure"]

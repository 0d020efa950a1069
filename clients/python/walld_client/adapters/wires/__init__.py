"""The wires of providers, folded without I/O: bytes of a response to items of a reply."""

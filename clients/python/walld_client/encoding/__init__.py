"""Values of the program as bytes of the wire: frames, payloads, names, redaction. No I/O."""

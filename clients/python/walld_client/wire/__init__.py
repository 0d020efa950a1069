"""The wire: messages and framing, sans-IO."""

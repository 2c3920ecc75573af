"""The log of a session: reading a path, making records, and the outbox."""

"""The log of a session: reading paths, making records, and making parcels for the outbox."""

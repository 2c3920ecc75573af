"""Provider responses: the message and the usage in a response, and streams turned into responses."""

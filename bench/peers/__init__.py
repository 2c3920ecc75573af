"""Scripts that run in a peer's own virtual environment and print what they measured as JSON."""

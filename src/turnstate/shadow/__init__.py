"""Snapshots of a work tree in a shadow repository, and restoring them. Knows nothing of conversations."""

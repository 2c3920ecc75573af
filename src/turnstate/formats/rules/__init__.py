"""What each provider rejects: one module per provider, each a pure walk over the raw document.

Validators check the document itself, not our interpretation of it, and accept any input: a document
that does not even have the right shape gives violations, never an exception.
"""

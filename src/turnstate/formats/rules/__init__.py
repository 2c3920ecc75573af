"""What each provider rejects: one module a provider, each a pure walk over the raw document.

Validators look at the document itself, not at our reading of it, and take anything at all: a
document that is not even of the right shape gives violations, never an exception.
"""

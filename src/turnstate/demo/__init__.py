"""The demo: a long conversation that loses nothing, then the commands on a bundled conversation.

`story` runs an agent in a process of its own on a real SQLite store, and verifies each claim while it
runs. `commands` gets the function that runs a command line as an argument: this package uses `cli_kit`
and does not depend on `cli`. Nothing is imported here, since the agent's process imports this package.
"""

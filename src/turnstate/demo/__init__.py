"""The demo: a long conversation that loses nothing, then the commands on a bundled conversation.

`story` runs an agent in its own process on a real SQLite store, and verifies each claim while it runs.
`commands` receives the function that runs a command line as an argument, since this package uses `terminal`
but does not depend on `cli`. Nothing is imported here, because the agent's process imports this package.
"""

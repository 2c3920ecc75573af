"""What each provider answers: the message and the usage in a response, and how a stream becomes one."""

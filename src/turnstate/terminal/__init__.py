"""What `cli`, `chat` and `demo` share: output for a terminal, times, sessions by name and as text."""

"""What all programs at a terminal share: the screen, progress, and entries as text."""

"""The command line: one table of options per command."""

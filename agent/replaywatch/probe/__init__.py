"""Runs inside the serving process; standard library and contract only."""

"""Plays recordings made on a real GPU through the real agent and collector."""

"""Part of a stand-in for tests."""

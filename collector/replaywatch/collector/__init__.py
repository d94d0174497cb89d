"""Ingest, store, detection tick, incidents, notifications, API and page."""

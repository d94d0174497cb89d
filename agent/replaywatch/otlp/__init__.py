"""Sending what /metrics shows to an OpenTelemetry collector instead, or as well; needs the extra `otlp`."""

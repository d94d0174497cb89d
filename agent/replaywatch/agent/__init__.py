"""The sidecar: receives frames from probes, exposes metrics, ships batches to the collector."""

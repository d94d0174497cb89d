"""What else becomes windows: traces, logs, engine metrics."""

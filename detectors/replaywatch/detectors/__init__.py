"""Windows in, verdicts out; pure, no I/O, no clock."""

"""Engine adapters: say why a step was not replayed, and how graphs were asked for. One file or folder per engine."""

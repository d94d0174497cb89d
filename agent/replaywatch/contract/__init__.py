"""The vocabulary that every stage shares: windows, snapshots, verdicts, errors, wire form and metric catalogue.

Standard library only: this package is imported inside other people's serving processes.
"""

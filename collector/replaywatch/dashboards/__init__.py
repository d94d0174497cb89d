"""Dashboards, alert rules and the reference of metrics, all made from the catalogue and the detectors."""

"""Files in, a report out: the offline form of the detectors."""

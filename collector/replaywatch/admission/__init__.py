"""Kubernetes asks here before it makes a pod; labelled pods are given the probe."""

"""Eviction: thresholds, pressure, and the order in which pods are evicted."""

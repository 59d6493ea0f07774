"""Use of resources: statistics, eviction signals, and desired against actual values."""

"""Processes in pods: how they get in, and whether they are."""

"""Cpus."""

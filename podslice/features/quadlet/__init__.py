"""Quadlet."""

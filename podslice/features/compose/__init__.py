"""Compose."""

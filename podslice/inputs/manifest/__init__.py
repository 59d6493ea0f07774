"""Manifests: from bytes to pods."""

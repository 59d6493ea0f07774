"""Fixtures of the tests that watch files; pytest finds them by their names here."""

from tests.unit.kernel.conftest import inotify, told

__all__ = ["inotify", "told"]

"""Fixtures of the tests that watch files; pytest finds them by their names here."""

from tests.unit.kernel.conftest import calls, inotify

__all__ = ["calls", "inotify"]

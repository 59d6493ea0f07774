"""The fixtures of tests that watch files, imported so that pytest finds them here."""

from tests.unit.kernel.conftest import calls, inotify

__all__ = ["calls", "inotify"]

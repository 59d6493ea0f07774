"""Hosts whose runtimes are checked."""

from tests.unit.features.doctor.conftest import machine  # noqa: F401 - a fixture

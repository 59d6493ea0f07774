"""Hosts that `doctor` checks."""

import pytest

from podslice.features.doctor import verb as doctor
from tests.unit.ansible.conftest import calls, module, run_podslice  # noqa: F401 - fixtures
from tests.unit.cli.test_configuration import applied, configure  # noqa: F401 - fixtures
from tests.unit.cli.test_widths import at_terminal  # noqa: F401 - a fixture
from tests.unit.features.doctor.hosts import host as doctor_host


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Make a host of files, which the verb checks as root."""

    def make(*changes):
        root = doctor_host(tmp_path / "host", *changes)
        monkeypatch.setattr(doctor, "HOST_ROOT", root)
        monkeypatch.setattr(doctor.os, "getuid", lambda: 0)
        monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/0")
        return root

    return make

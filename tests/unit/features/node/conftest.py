"""The collection for Ansible, which calls `node init`."""

from tests.unit.ansible.conftest import calls, module, run_podslice  # noqa: F401 - fixtures

import pytest

from tests.fake_systemd import FakeSystemd
from tests.unit.builders import (
    run_process,
    world,
)


@pytest.fixture
def kubelet(tmp_path):
    """Run a kubelet."""
    run_process(tmp_path, 42, "kubelet")


@pytest.fixture
def memory():
    return FakeSystemd()


@pytest.fixture
def here(tmp_path, memory):
    return world(tmp_path, memory)

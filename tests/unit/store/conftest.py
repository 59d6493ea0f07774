import pytest

from podslice.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "podslice")


@pytest.fixture
def no_permission(monkeypatch):
    """Tests run as root, whom nothing refuses."""

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    return lambda owner, name: monkeypatch.setattr(owner, name, refuse)

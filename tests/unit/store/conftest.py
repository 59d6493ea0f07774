import pytest

from podslice.store.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "podslice")


@pytest.fixture
def no_permission(monkeypatch):
    """Deny permission in a function of a module, since tests run as root."""

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    return lambda owner, name: monkeypatch.setattr(owner, name, refuse)

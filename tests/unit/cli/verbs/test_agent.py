import pytest

from podslice.cli.verbs.agent import own_manifests


@pytest.mark.parametrize(
    ("environment", "directory"),
    [
        ({"XDG_CONFIG_HOME": "/conf"}, "/conf/podslice/manifests"),
        ({"XDG_CONFIG_HOME": "conf"}, "/home/me/.config/podslice/manifests"),
        ({}, "/home/me/.config/podslice/manifests"),
    ],
)
def test_a_users_manifests_are_his_own(environment, directory, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert own_manifests(environment) == directory

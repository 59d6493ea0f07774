from podslice.cli.verbs.agent import own_manifests
from podslice.model.manager import user_manager


def test_manifests_of_a_user_are_below_the_users_configuration():
    manager = user_manager(7, {"HOME": "/home/me"})
    assert own_manifests(manager) == "/home/me/.config/podslice/manifests"

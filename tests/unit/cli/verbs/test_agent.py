from podslice.cli.wanted import manifest_directories
from podslice.model.config import Config
from podslice.model.unit import SYSTEM, user_manager


def test_manifests_of_a_user_are_below_the_users_configuration():
    manager = user_manager(7, {"HOME": "/home/me"})
    assert manifest_directories(Config(), manager) == ("/home/me/.config/podslice/manifests",)
    own = Config(manifests=("/srv/manifests",))
    assert manifest_directories(own, manager) == manifest_directories(own, SYSTEM) == own.manifests

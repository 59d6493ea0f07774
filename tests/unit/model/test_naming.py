import pytest

from podslice.model.naming import (
    container_of,
    pod_of_data,
    podman_part,
    podman_pod,
    podman_service,
    scope_name,
    service_name,
)
from podslice.model.unit import UnitName


def test_the_service_of_a_container_has_the_name_of_its_scope():
    assert scope_name("12-34", "app") == "podslice-pod12_34-app.scope"
    assert service_name(UnitName("podslice-pod12_34-app.scope")) == "podslice-pod12_34-app.service"


def test_pods_and_containers_of_podman_never_have_the_same_name():
    names = ("a", "b", "a-b", "b-a", "a.b", "a--b")
    pods = {f"{each}/{name}" for each in (*names, "default") for name in names}
    found = [podman_pod(key) for key in pods]
    found += [podman_part(podman_pod(key), name) for key in pods for name in names]
    assert len(found) == len(set(found)) == len(pods) * (1 + len(names))


def test_objects_of_podman_have_the_namespace_unless_it_is_the_default():
    assert (podman_pod("default/web"), podman_pod("shop/web")) == ("web", "shop__web")
    assert podman_service("shop/web") == "shop__web-pod.service"


@pytest.mark.parametrize(
    ("service", "container"),
    [
        (r"foo@bar\x2dx.service", "foo-bar-x"),
        (r"\x41\x2f.service", "a"),
        ("a" * 64 + ".service", "a" * 63),
        ("-_-.service", "main"),
    ],
)
def test_an_adopted_service_has_the_name_of_a_container(service, container):
    assert container_of(service) == container


def test_a_directory_of_data_has_the_namespace_before_the_first_separator():
    assert pod_of_data("shop_web") == "shop/web"
    assert pod_of_data("of_an_operator") == "of/an_operator"

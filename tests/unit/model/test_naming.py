from podslice.model.naming import podman_pod, podman_service, scope_name, service_name
from podslice.model.unit import UnitName


def test_the_service_of_a_container_has_the_name_of_its_scope():
    assert scope_name("12-34", "app") == "podslice-pod12_34-app.scope"
    assert service_name(UnitName("podslice-pod12_34-app.scope")) == "podslice-pod12_34-app.service"


def test_objects_of_podman_have_the_namespace_unless_it_is_the_default():
    assert (podman_pod("default/web"), podman_pod("shop/web")) == ("web", "shop-web")
    assert podman_service("shop/web") == "shop-web-pod.service"

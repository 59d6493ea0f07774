from podslice.model.naming import scope_name, service_name
from podslice.model.unit import UnitName


def test_the_service_of_a_container_has_the_name_of_its_scope():
    assert scope_name("12-34", "app") == "podslice-pod12_34-app.scope"
    assert service_name(UnitName("podslice-pod12_34-app.scope")) == "podslice-pod12_34-app.service"

import uuid

import pytest

from podslice.errors import HostError, InputError, JobFailed, Problem, Severity
from podslice.model.naming import Tree, scope_name, volume_path
from podslice.model.pod import Container, ContainerKind, Pod, Qos, default_uid
from podslice.model.unit import is_unit_name, mount_name
from tests.cases.tables import cases

ERROR = Problem(where="a", message="b")
WARNING = Problem(where="a", message="b", severity=Severity.WARNING)


def test_the_key_is_namespace_and_name():
    assert Pod(name="web", uid="1", namespace="shop").key == "shop/web"
    assert Pod(name="web", uid="1").key == "default/web"


def test_containers_of_a_kind_keep_their_order():
    kinds = (ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP)
    pod = Pod(
        name="a",
        uid="a",
        containers=tuple(Container(name=str(n), kind=kind) for n, kind in enumerate(kinds)),
    )
    assert [c.name for c in pod.of_kind(ContainerKind.APP)] == ["0", "3"]
    assert [c.name for c in pod.of_kind(ContainerKind.INIT, ContainerKind.SIDECAR)] == ["1", "2"]
    assert pod.of_kind() == ()


@pytest.mark.parametrize(
    ("problems", "valid"),
    [((), True), ((WARNING,), True), ((ERROR,), False), ((WARNING, ERROR), False)],
)
def test_only_errors_make_a_pod_invalid(problems, valid):
    assert Pod(name="a", uid="a", problems=problems).is_valid is valid


def test_a_name_always_gives_the_same_uid_and_another_another():
    names = [("default", "web"), ("default", "db"), ("shop", "web")]
    uids = [default_uid(*each) for each in names]
    assert uids == [default_uid(*each) for each in names]
    assert len(set(uids)) == 3
    assert uids == ["web.default", "db.default", "web.shop"]


@cases
def test_a_name_that_is_not_a_uid_gets_a_hash(namespace, name):
    uid = default_uid(namespace, name)
    assert uuid.UUID(uid) == uuid.uuid5(uuid.NAMESPACE_URL, f"{namespace}/{name}")


def test_the_longest_names_of_units_are_valid():
    uid = default_uid("default", "a" * 120)
    assert uid == f"{'a' * 120}.default"
    container = scope_name(uid, "c" * 63).removesuffix("scope")
    names = [f"{container}service", container.replace("-pod", "-probe-pod", 1) + "service"]
    names += [Tree().pod(uid, qos) for qos in Qos]
    names += [mount_name(volume_path(uid, "v" * 63))]
    dashes = default_uid("default", "a-" * 24 + "a")
    assert "-" in dashes
    names += [mount_name(volume_path(dashes, "v" * 63))]
    assert all(map(is_unit_name, names))


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (Problem(where="a.yaml: spec", message="is wrong"), "a.yaml: spec: is wrong"),
        (Problem(where="", message="is wrong"), "is wrong"),
        (Problem(where="a", message="is wrong", hint="do this"), "a: is wrong; do this"),
        (Problem(where="", message="is wrong", hint="do this"), "is wrong; do this"),
    ],
)
def test_a_problem_has_a_place_a_message_and_a_hint(problem, expected):
    assert str(problem) == expected


def test_an_input_error_lists_each_problem_on_its_own_line():
    error = InputError([ERROR, Problem(where="c", message="d")])
    assert str(error) == "a: b\nc: d"
    assert InputError(ERROR).problems == (ERROR,)
    assert (error.exit_code, HostError().exit_code) == (2, 1)


def test_a_failed_job_keeps_its_result():
    assert JobFailed("x", result="timeout").result == "timeout"


@pytest.mark.parametrize(("letters", "is_plain"), [(23, True), (24, False)])
def test_a_uid_is_the_name_if_the_mount_unit_of_a_volume_has_room_for_it(letters, is_plain):
    # 40 characters, 23 or 24 more, `.shop`, and 3 more for each `-`: 128 or 129
    name = "a-" * 20 + "a" * letters
    assert (default_uid("shop", name) == f"{name}.shop") is is_plain

"""Steps from the files and services that exist to those that should."""

import pytest

from podslice.errors import InputError
from podslice.features.quadlet.transition import (
    CHANGED,
    LEFT_OUT,
    REMOVED,
    PresentPod,
    is_unit,
    service_of,
    steps_to_keep,
    steps_to_remove,
)
from podslice.model.event import Kind
from podslice.model.unit import GENERATED, user_manager
from tests.cases.quadlets import made_of_text
from tests.cases.tables import cases

MANIFEST = """
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: s3cret}
---
apiVersion: v1
kind: Pod
metadata: {name: web, uid: u1}
spec:
  initContainers:
  - {name: prepare, image: app}
  containers:
  - name: app
    image: app
    env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: login, key: password}}}]
    resources: {limits: {cpu: 100m}}
    volumeMounts: [{name: data, mountPath: /data}]
  - name: log
    image: app
    livenessProbe: {tcpSocket: {port: 80}}
  volumes:
  - {name: data, emptyDir: {}}
  - {name: kept, persistentVolumeClaim: {claimName: kept}}
  - {name: login, secret: {secretName: login}}
"""
POD, PREPARE, APP, LOG = (
    "web-pod.service",
    "podslice-podu1-prepare.service",
    "podslice-podu1-app.service",
    "podslice-podu1-log.service",
)
PROBER = "podslice-probe-podu1-log.service"
DATA = "volumes/default_web"
VOLUMES = ("web_data-volume.service", "web_kept-volume.service")
UP = dict.fromkeys((POD, PREPARE, APP, LOG, PROBER, *VOLUMES), "active")


def made(text=MANIFEST, **options):
    return made_of_text(text, **options)


def present(text=MANIFEST, states=UP, **changes):
    files = {each.path: each.content for each in made(text).files}
    return PresentPod(files=files, states={**states, **changes}, has_data=True)


def keep(text, before):
    """The steps for services, and for files."""
    steps = steps_to_keep(made(text), before)
    assert {each.pod for each in steps} <= {"default/web"}
    services = [(str(each.action), each.name) for each in steps if each.name.endswith(".service")]
    files = [(str(each.action), each.name) for each in steps if not each.name.endswith(".service")]
    return services, files


def test_a_pod_that_runs_as_it_should_is_left_alone():
    assert steps_to_keep(made(), present()) == ()


def test_a_new_pod_is_written_and_started():
    nothing = PresentPod(files={}, states={})
    steps = steps_to_keep(made(), nothing)
    written = [each for each in steps if each.action == "write"]
    assert [each.file for each in written] == list(made().files)
    starts = [each for each in steps if each.action == "start"]
    assert [each.name for each in starts] == [POD, PREPARE, APP, LOG]
    assert [each.file.path for each in starts] == [
        "web.pod",
        "web_prepare.container",
        "web_app.container",
        "web_log.container",
    ]
    assert steps == (*written, *starts)


def test_written_and_removed_files_know_the_directories_of_the_data():
    before = present(MANIFEST.replace("name: log\n    image", "name: old\n    image"))
    steps = steps_to_keep(made(), before)
    of_files = [each for each in steps if each.action in ("write", "remove")]
    assert {str(each.action) for each in of_files} == {"write", "remove"}
    assert {each.directories for each in of_files if not each.name.endswith(".service")} == {
        made().directories
    }


GROUP = "  securityContext: {fsGroup: 7}\n"
PRIVATE = MANIFEST.replace("secretName: login", "secretName: login, defaultMode: 0400")
PASSWORD = f"{DATA}/login/password"


@pytest.mark.parametrize(
    ("text", "access", "written"),
    [
        (PRIVATE, (0o400, 7), []),
        (PRIVATE, (0o440, 7), [PASSWORD]),
        (f"{PRIVATE}{GROUP}", (0o440, 7), []),
        (f"{PRIVATE}{GROUP}", (0o440, 0), [PASSWORD]),
        (f"{PRIVATE}{GROUP}", (0o400, 7), [PASSWORD]),
    ],
)
def test_data_with_another_mode_or_group_is_written_again(text, access, written):
    before = present(text)._replace(access={PASSWORD: access})
    assert [each.name for each in steps_to_keep(made(text), before)] == written


def test_a_user_gives_no_file_to_a_group():
    loaded = f"{PRIVATE}{GROUP}"
    with pytest.raises(InputError, match="cannot give password of volume login to the fsGroup"):
        made(loaded, manager=user_manager(1000, {"XDG_RUNTIME_DIR": "/run/user/1000", "HOME": "/"}))
    made(f"{MANIFEST}{GROUP}", manager=user_manager(1000, {"HOME": "/"}))


def test_only_the_start_of_a_container_is_logged():
    steps = steps_to_keep(made(), PresentPod(files={}, states={}))
    assert [each.event for each in steps if each.event] == [
        (Kind.CONTAINER_STARTED, f"started {name} of pod default/web")
        for name in (PREPARE, APP, LOG)
    ]
    assert not any(each.event for each in steps_to_remove("default/web", present()))


def test_a_pod_that_is_down_is_started_whole():
    everything = [("start", each) for each in (POD, PREPARE, APP, LOG)]
    assert keep(MANIFEST, present(states={})) == (everything, [])
    assert keep(MANIFEST, present(states={POD: "failed"})) == (everything, [])
    assert keep(MANIFEST, present(**{POD: "activating"})) == ([], [])


def test_a_container_that_ended_starts_again_as_its_restart_policy_states():
    for state in ("inactive", "failed"):
        assert keep(MANIFEST, present(**{APP: state})) == ([("start", APP)], [])
    assert keep(MANIFEST, present(**{APP: "activating"})) == ([], [])
    on_failure, never = (f"{MANIFEST}  restartPolicy: {each}\n" for each in ("OnFailure", "Never"))
    assert keep(on_failure, present(on_failure, **{APP: "inactive"})) == ([], [])
    assert keep(on_failure, present(on_failure, **{APP: "failed"})) == ([("start", APP)], [])
    for state in ("inactive", "failed"):
        assert keep(never, present(never, **{APP: state})) == ([], [])


def test_a_changed_container_is_started_again_and_no_other():
    text = MANIFEST.replace("name: log\n    image: app", "name: log\n    image: app:2")
    services, files = keep(text, present())
    assert services == [("stop", LOG), ("start", LOG)]
    assert files == [("write", "web_log.container")]
    (stop, *_) = steps_to_keep(made(text), present())
    assert stop.why == CHANGED
    services, _ = keep(text, present(**{LOG: "inactive"}))
    assert services == [("start", LOG)]


def test_other_limits_restart_nothing():
    text = MANIFEST.replace("cpu: 100m", "cpu: 200m, memory: 64Mi")
    services, files = keep(text, present())
    assert services == []
    assert files == [("write", "web_app.container")]


@cases
def test_the_pod_restarts_with_its_own_file_and_its_init_containers(old, new):
    services, files = keep(MANIFEST.replace(old, new, 1), present())
    units = (POD, PREPARE, APP, LOG, PROBER)
    assert sorted(services[:5]) == sorted(("stop", each) for each in units)
    assert services[5:] == [("start", each) for each in (POD, PREPARE, APP, LOG, PROBER)]
    assert len(files) == 1


def test_other_variables_from_secrets_restart_their_container():
    services, files = keep(MANIFEST.replace("s3cret", "other"), present())
    assert services == [("stop", APP), ("start", APP)]
    assert files == [("write", f"{DATA}/app.env"), ("write", f"{DATA}/login/password")]


def test_other_files_of_secrets_restart_nothing():
    files = {**present().files, f"{DATA}/login/password": b"x", f"{DATA}/login/a.env": b""}
    steps = steps_to_keep(made(), PresentPod(files=files, states=UP))
    assert [(str(each.action), each.name) for each in steps] == [
        ("write", f"{DATA}/login/password"),
        ("remove", f"{DATA}/login/a.env"),
    ]


def test_a_pod_without_data_leaves_no_directory():
    text = MANIFEST.replace("    env: [{name: PASSWORD", "    tty: false #").replace(
        "  - {name: login, secret", "  #"
    )
    steps = steps_to_keep(made(text), present())
    assert [each.name for each in steps if each.action == "remove"] == [DATA]
    nothing = PresentPod(files={}, states={}, has_data=True)
    assert [each.name for each in steps_to_remove("default/web", nothing)] == [DATA]


def test_another_probe_restarts_its_prober_only():
    services, files = keep(MANIFEST.replace("port: 80", "port: 81"), present())
    assert services == [("stop", PROBER), ("write", PROBER), ("start", PROBER)]
    assert files == []
    services, _ = keep(MANIFEST.replace("port: 80", "port: 81"), present(**{PROBER: "inactive"}))
    assert services == [("write", PROBER)]


def test_what_the_pod_no_longer_has_is_stopped_and_removed():
    head, _, rest = MANIFEST.partition("  - name: log")
    _, _, volumes = rest.partition("  volumes:\n")
    text = f"{head}  volumes:\n{volumes}".replace("name: data", "name: cache")
    steps = steps_to_keep(made(text), present(**{LOG: "failed"}))
    assert [(str(each.action), each.name, each.why) for each in steps] == [
        ("stop", APP, CHANGED),
        ("stop", LOG, LEFT_OUT),
        ("stop", PROBER, LEFT_OUT),
        ("stop", VOLUMES[0], LEFT_OUT),
        ("write", "web_app.container", ""),
        ("write", "web_cache.volume", ""),
        ("remove", PROBER, ""),
        ("remove", "web_data.volume", ""),
        ("remove", "web_log.container", ""),
        ("remove-volume", "emptyDir-web_data", ""),
        ("start", APP, ""),
    ]
    down = [each.name for each in steps_to_keep(made(text), present(states={POD: "active"}))]
    assert LOG not in down


def test_the_service_of_a_pod_may_have_had_another_name():
    """As that of a pod that has an overhead now."""
    old = f"{GENERATED}\n[Unit]\nDescription=Pod default/web\n[Pod]\nServiceName=other\n"
    files = {**present().files, "web.pod": old.encode()}
    before = PresentPod(files=files, states={**UP, "other.service": "active"})
    services, _ = keep(MANIFEST, before)
    assert ("stop", "other.service") in services
    assert ("start", POD) in services


def test_a_pod_is_removed_with_its_empty_directories_and_without_its_claims():
    steps = steps_to_remove("default/web", present(**{LOG: "failed", PROBER: "inactive"}))
    units = (POD, PREPARE, APP, LOG, *VOLUMES)
    assert [(each.name, each.why) for each in steps[:6]] == [(each, REMOVED) for each in units]
    removed = [each.name for each in steps if each.action == "remove"]
    units = sorted(path for path in present().files if is_unit(path) and path != "web.pod")
    # that of the pod is the last one, so that an interrupted removal can be repeated
    assert removed == [DATA, *units, "web.pod"]
    assert [each.name for each in steps if each.action == "remove-volume"] == ["emptyDir-web_data"]
    assert {each.pod for each in steps} == {"default/web"}


def test_only_services_with_processes_of_the_pod_are_killed_after_the_grace_period():
    """In the others podman removes the pod and its volumes."""
    stops = [each for each in steps_to_remove("default/web", present()) if each.action == "stop"]
    killed = {each.name for each in stops if each.is_killed}
    assert killed == {PREPARE, APP, LOG, PROBER}
    assert {each.name for each in stops} - killed == {POD, *VOLUMES}


def test_the_service_of_a_pod_is_the_first_to_stop():
    """Its files are read in the order of their names."""
    files = dict(sorted(present().files.items()))
    steps = steps_to_remove("default/web", PresentPod(files=files, states=UP))
    assert steps[0].name == POD


def test_a_unit_that_is_not_text_is_of_an_earlier_version():
    files = {**present().files, "web_app.container": b"\xff"}
    services, _ = keep(MANIFEST, PresentPod(files=files, states=UP))
    assert services == [("start", APP)]


def test_a_pod_that_the_agent_keeps_has_a_mark_which_restarts_nothing():
    kept = made(is_kept=True)
    (step,) = steps_to_keep(kept, present())
    assert (str(step.action), step.name) == ("write", "web.pod")
    assert not present().is_kept
    files = {each.path: each.content for each in kept.files}
    assert PresentPod(files=files, states={}).is_kept


def test_only_units_make_services():
    assert [path for path in present().files if not is_unit(path)] == [
        f"{DATA}/app.env",
        f"{DATA}/login/password",
    ]
    assert not is_unit(f"{DATA}/x.service")
    assert service_of("a.pod", "") == "a-pod.service"
    assert service_of("a.b.volume", "x\nServiceName=c.d\nServiceName=e\n") == "c.d.service"
    assert service_of("a.service", "ServiceName=b") == "a.service"

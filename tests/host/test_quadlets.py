"""Quadlets and podman: its generator reads the cases; pods of a user, and one of kube play."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from podslice.features.quadlet.container import stop_line
from podslice.features.quadlet.files import Directories, installed, write_quadlets
from podslice.features.quadlet.result import PODMAN, is_data
from podslice.features.quadlet.volume_units import MAKE_BELOW
from podslice.features.quadlet.workload import Exec, Sleep
from podslice.model.pod import default_uid
from podslice.model.unit import control_group_of, user_manager
from tests.cases import quadlets
from tests.cases.quadlets import CASES, QUADLETS, made_of, settings_of
from tests.host import mail, podman, users
from tests.host.mail import MailPod
from tests.host.podman import MAKE_IMAGE_OF_USER
from tests.host.scenario import kernel
from tests.host.test_podman import group_of
from tests.lab import fixtures
from tests.lab.image import ensure_image
from tests.lab.recipe import DEFAULT_SUITE

RENDERED = [name for name in CASES if "=== pod" in (QUADLETS / name / "expect.txt").read_text()]
SUFFIXES = {".container": "", ".pod": "-pod", ".volume": "-volume", ".network": "-network"}
MI = 2**20
GRACE_SEC = 30
FAKE_PODMAN = """#!/bin/sh
echo "$*" >>"$CALLS"
[ "$1" = stop ] || { shift 2; exec "$@"; }
"""

SMALL = """
apiVersion: v1
kind: Pod
metadata: {name: small}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 600
  resources: {limits: {cpu: "1", memory: 256Mi}}
  containers:
  - name: app
    image: localhost/app:1
    resources: {requests: {cpu: 500m, memory: 16Mi}, limits: {cpu: 500m, memory: 64Mi}}
    lifecycle: {postStart: {exec: {command: [touch, /tmp/begun]}}}
    readinessProbe: {exec: {command: [test, -e, /tmp/begun]}, timeoutSeconds: 60}
"""
SMALL_ID = f"pod{default_uid('default', 'small').replace('-', '_')}"
SMALL_APP = f"podslice-{SMALL_ID}-app.service"
SMALL_GROUP = control_group_of(f"kubepods-burstable-{SMALL_ID}.slice")
FILES = ("cpu.max", "cpu.weight", "memory.max", "memory.low")
"""The values of a pod and its container, each in this order."""
SMALL_VALUES = (
    ("100000 100000", "50", str(256 * MI), str(16 * MI)),
    ("50000 100000", "50", str(64 * MI), str(16 * MI)),
)
SIZED = """
apiVersion: v1
kind: Pod
metadata: {name: sized}
spec:
  hostNetwork: true
  containers:
  - name: app
    image: localhost/app:1
    command: [sh, -c, 'dd if=/dev/zero of=/data/file bs=1M count=2; sleep 100000']
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {sizeLimit: 1Mi}}]
"""
KUBE_PLAY = (
    ("max 100000", "100", "max", "0"),
    ("50000 100000", "100", str(64 * MI), str(16 * MI)),
)
"""The same of podman kube play: nothing of the pod, and nothing of CPU requests."""


MAIL = (
    mail.MANIFEST.read_text()
    .replace(mail.IMAGE, "localhost/app:1")
    .replace("      initContainers:", "      hostNetwork: true\n      initContainers:")
    # the user has no ids but its own
    .replace("runAsUser: 1000", "runAsUser: 0")
)
HOME = f"/home/{users.NAME}"
IN_HOME = ("env", f"--chdir={HOME}", f"HOME={HOME}", f"USER={users.NAME}")
MANAGER_GROUP = f"/user.slice/user-{users.UID}.slice/{users.MANAGER}"


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    """A command with podman's generator, and the libraries of the release that it is from."""
    fixtures.need_lab()
    program = podman.extract_generator(tmp_path_factory.mktemp("podman"))
    system = ensure_image(DEFAULT_SUITE).root
    return (
        system / "lib64/ld-linux-x86-64.so.2",
        "--library-path",
        system / "usr/lib/x86_64-linux-gnu",
        program,
    )


@pytest.mark.parametrize("name", RENDERED)
def test_the_generator_of_podman_reads_each_case(generator, tmp_path, monkeypatch, name):
    monkeypatch.chdir(QUADLETS / name)
    _, pods = made_of(QUADLETS / name)
    directories = Directories(
        generator=tmp_path / "quadlets", units=tmp_path / "units", own=tmp_path / "own"
    )
    directories.generator.mkdir()
    write_quadlets(pods, directories)
    user = ("-user",) if settings_of(QUADLETS / name).get("user") else ()
    result = subprocess.run(
        [*generator, "-dryrun", "-no-kmsg-log", *user],
        env={"QUADLET_UNIT_DIRS": str(directories.generator)},
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [
        line for line in result.stderr.splitlines() if "Loading source unit file" not in line
    ]
    assert complaints == []
    assert result.returncode == 0
    made = [line.strip("-") for line in result.stdout.splitlines() if line.startswith("---")]
    assert sorted(made) == sorted(service for pod in pods for service in services_of(pod))


@pytest.fixture(params=["home", 'a "home", %h $x'])
def generate_for_user(generator, tmp_path, monkeypatch, request):
    """A function that writes a case for a user, and returns the state directory and the units."""
    home = tmp_path / request.param
    manager = user_manager(1000, {"HOME": str(home)})
    monkeypatch.setattr(quadlets, "USER", manager)
    monkeypatch.setattr(quadlets, "settings_of", lambda _: {"user": True})

    def generate(name):
        monkeypatch.chdir(QUADLETS / name)
        _, pods = made_of(QUADLETS / name)
        write_quadlets(pods, installed(manager))
        result = subprocess.run(
            [*generator, "-user", "-dryrun", "-no-kmsg-log"],
            env={"HOME": str(home), "XDG_CONFIG_HOME": f"{home}/.config"},
            capture_output=True,
            text=True,
            check=True,
        )
        return f"{home}/.local/state/podslice", result.stdout

    return generate


def test_units_of_a_user_refer_to_data_in_the_state_directory(generate_for_user):
    """Whatever characters its path has."""
    state, units = generate_for_user("configmaps-and-secrets")
    (command,) = re.findall(r"^ExecStart=(.* --name=?\s?web_app .*)$", units, re.MULTILINE)
    words = shlex.split(command.replace("%%", "%").replace("$$", "$"))
    assert f"{state}/volumes/default_web/settings:/etc/app:ro,z" in words
    variables = words[words.index("--env-file") + 1]
    assert variables == f"{state}/volumes/default_web/app.env"
    assert Path(variables).read_text().startswith("LOGIN_password=")


def test_names_of_files_add_nothing_to_units_of_a_user(generate_for_user):
    state, units = generate_for_user("names-of-units-in-volumes")
    data = Path(state, "volumes/default_web/etc")
    assert (data / "container.d/10.conf").is_file()
    assert "/run/any" not in units
    services = {line.strip("-") for line in units.splitlines() if line.startswith("---")}
    assert services == {"web-pod.service", "podslice-pod0a1b_2c-app.service"}


def services_of(pod):
    """Yield the services that the generator makes of a pod's files."""
    for file in pod.files:
        stem, dot, suffix = file.path.rpartition(".")
        if f".{suffix}" in SUFFIXES and not is_data(file.path):
            named = [
                line.removeprefix("ServiceName=")
                for line in file.text.splitlines()
                if line.startswith("ServiceName=")
            ]
            yield f"{named[0] if named else stem + SUFFIXES[dot + suffix]}.service"


@pytest.fixture
def stop(tmp_path):
    """A function that runs the commands before a stop with a program in place of podman.

    It returns the arguments of each call of that.
    """
    program, calls = tmp_path / "podman", tmp_path / "calls"
    program.write_text(FAKE_PODMAN)
    program.chmod(0o755)
    calls.touch()

    def run(action, grace_sec, main_pid="7"):
        line = stop_line(action, "web-app", grace_sec).removeprefix("-")
        plain = line.replace("$$", "$").replace("%%", "%").replace(PODMAN, str(program))
        environment = {"CALLS": str(calls), "PATH": "/usr/bin:/bin"}
        environment |= {"MAINPID": main_pid} if main_pid else {}
        subprocess.run(shlex.split(plain), env=environment, check=True)
        return calls.read_text().splitlines()

    return run


def left_sec(call):
    """Return the grace period with which podman was called."""
    *words, name = call.split()
    assert (words[:2], name) == (["stop", "--ignore"], "web-app")
    return int(words[2].removeprefix("--time="))


def test_the_time_of_a_hook_counts(stop):
    (call,) = stop(Sleep(seconds=2), GRACE_SEC)
    assert 2 <= left_sec(call) <= GRACE_SEC - 2


def test_a_hook_ends_with_the_grace_period_and_two_seconds_remain(stop):
    (call,) = stop(Sleep(seconds=100_000), 1)
    assert left_sec(call) == 2


def test_a_container_stops_after_a_hook_that_fails(stop):
    hook, call = stop(Exec(command=("false", "a b", "$x")), GRACE_SEC)
    assert hook == "exec web-app false a b $x"
    assert 2 <= left_sec(call) <= GRACE_SEC


def test_a_container_that_has_exited_has_no_hook(stop):
    assert stop(Sleep(seconds=100_000), GRACE_SEC, main_pid=None) == []


def make_below(top, sub_path):
    """Run the command before a container that mounts a part of a volume; return its result."""
    command = ["/usr/bin/sh", "-c", MAKE_BELOW, "sh", str(top), sub_path]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("mode", [0o755, 0o1777, 0o700])
def test_a_part_of_a_volume_has_the_mode_of_the_volume(tmp_path, mode):
    tmp_path.chmod(mode)
    assert make_below(tmp_path, "a b/$c").returncode == 0
    for each in ("a b", "a b/$c"):
        assert (tmp_path / each).stat().st_mode & 0o777 == mode & 0o777
    (tmp_path / "file").touch()
    assert make_below(tmp_path, "file").returncode == 0


@pytest.mark.parametrize("sub_path", ["link", "link/new"])
def test_a_part_of_a_volume_does_not_lead_out_of_it(tmp_path, sub_path):
    """A process with access to the volume could mount any path of the host otherwise."""
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    for each in (volume, outside):
        each.mkdir()
    (volume / "link").symlink_to(outside)
    done = make_below(volume, sub_path)
    assert done.returncode != 0
    assert done.stderr.strip().endswith(f"{sub_path} leads out of {volume}")
    assert list(outside.iterdir()) == []


def values(box, *groups):
    """Return the values of control groups."""
    return tuple(tuple(kernel(box, each, file) for file in FILES) for each in groups)


def test_the_same_pod_with_kube_play(clean_podman_vm):
    """What podslice-quadlet(7) states as measured."""
    box = clean_podman_vm
    box.put("/small.yaml", SMALL)
    box.run("podman", "kube", "play", "/small.yaml")
    pid = box.run("podman", "inspect", "--format={{.State.Pid}}", "small-app").stdout.strip()
    scope = group_of(box, pid).removesuffix("/container")
    pod = scope.rpartition("/")[0]
    assert pod.startswith("/machine.slice/machine-libpod_pod_")
    assert values(box, pod, scope) == KUBE_PLAY
    # neither hooks nor readiness
    assert box.run("podman", "exec", "small-app", "ls", "/tmp").stdout == ""
    shown = box.run("podman", "inspect", "--format={{json .Config.Healthcheck}}", "small-app")
    assert shown.stdout == "null\n"


def check_that_no_file_is_left(box):
    """Check that a user has neither quadlets nor data."""
    left = users.command(box, "find", f"{HOME}/.config", "-type", "f").stdout
    data = f"{HOME}/.local/state/podslice/volumes"
    assert left + users.command(box, "find", data, "-mindepth", "1", check=False).stdout == ""


def test_the_kernel_has_the_values_of_a_pod_of_a_user(clean_podman_vm):
    box = clean_podman_vm
    box.put("/small.yaml", SMALL)
    with users.user_manager(box) as podslice:
        users.command(box, "sh", "-ec", MAKE_IMAGE_OF_USER)
        podslice("apply", "-f", "/small.yaml", "--start")
        group = f"{MANAGER_GROUP}{SMALL_GROUP}"
        assert values(box, group, f"{group}/{SMALL_APP}") == SMALL_VALUES
        assert kernel(box, f"{group}/{SMALL_APP}", "cgroup.events").startswith("populated 1")
        podslice("delete", "-f", "/small.yaml")
        with pytest.raises(FileNotFoundError):
            kernel(box, group, "cgroup.events")
        check_that_no_file_is_left(box)


def test_pods_of_a_user(clean_podman_namespace):
    box = clean_podman_namespace
    box.put("/small.yaml", SMALL)
    box.put("/mail.yaml", MAIL)
    files = ("-f", "/small.yaml", "-f", "/mail.yaml")
    with users.user_manager(box) as podslice:
        users.command(box, "sh", "-ec", MAKE_IMAGE_OF_USER)

        # systemd would make the slice, without limits
        podslice("render", "-f", "/small.yaml", "--format", "quadlet", "--install")
        users.command(box, "systemctl", "--user", "daemon-reload")
        start = ("systemctl", "--user", "start", "small-pod.service")
        refused = users.command(box, *start, check=False).stderr
        assert "Assertion failed" in refused

        podslice("apply", *files, "--start")
        storage = f"{HOME}/.local/share/containers/storage"
        files_of_podman = f"{HOME}/.config/containers/systemd"
        pod = MailPod(box, manager=MANAGER_GROUP, storage=storage, files=files_of_podman)
        pod.check()

        # its prober has joined the namespaces of the user
        dead = ("podman", "exec", "shop__mail-0_mail", "touch", "/tmp/dead")
        users.command(box, *IN_HOME, *dead)
        pod.wait_for_log(mail.RESTARTED)

        podslice("delete", *files)
        check_that_no_file_is_left(box)

        check_a_size_limit(box, podslice)
        check_that_no_file_is_left(box)


def check_a_size_limit(box, podslice):
    """Check that a pod is evicted whose container writes more than its volume may have."""
    box.put("/sized.yaml", SIZED)
    podman.measure_volumes_often(box)
    podslice("apply", "-f", "/sized.yaml", "--start")
    # until the end of the service that measures, which ends with the pod
    wait = "until systemctl --user is-active $0 | grep -qx inactive; do sleep 1; done"
    users.command(box, "timeout", "240", "sh", "-c", wait, "sized-pod.service")
    reason = 'evicted: Usage of EmptyDir volume "data" exceeds the limit "1Mi"'
    assert reason in podslice("status", check=False).stdout
    assert podslice("apply", "-f", "/sized.yaml", "--start", check=False).exit_code == 1
    podslice("delete", "sized")

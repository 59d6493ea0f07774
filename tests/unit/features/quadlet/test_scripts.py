"""The scripts of units, with a program in place of podman."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from podslice.features.quadlet.container import _CHECK_USER, _WRITE_VALUES
from podslice.features.quadlet.result import PODMAN
from podslice.features.quadlet.volume_units import _SET_GROUP, _WATCH

pytestmark = pytest.mark.usefixtures("allow_effects")


@pytest.fixture
def volume(tmp_path):
    top = tmp_path / "volume"
    (top / "inner").mkdir(parents=True)
    (top / "inner/file").write_text("")
    (tmp_path / "other").write_text("")
    (top / "link").symlink_to(tmp_path / "other")
    for path, mode in ((top, 0o755), (top / "inner", 0o700), (top / "inner/file", 0o604)):
        path.chmod(mode)
    (tmp_path / "other").chmod(0o600)
    podman = tmp_path / "podman"
    podman.write_text(f"#!/bin/sh\necho {top}\n")
    podman.chmod(0o755)
    return top


def set_group(volume, *stated):
    script = _SET_GROUP.replace(PODMAN, str(volume.parent / "podman"))
    arguments = ["sh", "-c", script, "sh", "name", str(os.getgid()), *stated]
    subprocess.run(arguments, check=True)
    paths = (volume, volume / "inner", volume / "inner/file", volume.parent / "other")
    return [each.stat().st_mode & 0o7777 for each in paths]


ALL = [0o2775, 0o2770, 0o664, 0o600]


@pytest.mark.parametrize(
    ("rights", "mode", "expected"),
    [("rw", "-2770", ALL), ("r", "-2550", [0o2755, 0o2750, 0o644, 0o600])],
)
@pytest.mark.parametrize("policy", ["Always", "OnRootMismatch"])
def test_a_group_may_use_all_of_a_volume(volume, policy, rights, mode, expected):
    assert set_group(volume, policy, rights, mode) == expected


def test_a_volume_whose_top_has_the_group_remains_as_it_is(volume):
    volume.chmod(0o2770)
    before = [0o2770, 0o700, 0o604, 0o600]
    assert set_group(volume, "OnRootMismatch", "rw", "-2770") == before
    assert set_group(volume, "Always", "rw", "-2770") == [0o2770, *ALL[1:]]


IP = """#!/bin/sh
echo "192.0.2.1 via 10.0.0.1 dev eth0 src ${WHERE:-10.0.0.2} uid 0"
"""
NSENTER = """#!/bin/sh
read -r name </proc/$4/comm
shift 4
WHERE=pod-of-$name exec "$@"
"""
ALL_VALUES = ("PODSLICE_HOST_IP", "PODSLICE_NODE_NAME", "PODSLICE_POD_IP")


def write_later(directory, *names, ip=IP):
    """Run the script of a pod whose main process has a child, and return what it has written."""
    for name, text in (("ip", ip), ("nsenter", NSENTER), ("uname", "#!/bin/sh\necho Host-A\n")):
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    # the child has the name of the shell until it executes its program
    start = "sleep 1000 & until read -r name </proc/$!/comm && [ $name = sleep ]; do :; done; echo; wait"
    with subprocess.Popen(["/usr/bin/sh", "-c", start], stdout=-1) as monitor:
        monitor.stdout.readline()
        environment = {
            "MAINPID": str(monitor.pid),
            "RUNTIME_DIRECTORY": str(directory),
            "PATH": f"{directory}:{os.environ['PATH']}",
        }
        arguments = ["sh", "-c", _WRITE_VALUES, "sh", "--user --net", *names]
        ended = subprocess.run(arguments, check=False, env=environment, capture_output=True)
        children = Path(f"/proc/{monitor.pid}/task/{monitor.pid}/children")
        os.kill(int(children.read_text()), signal.SIGKILL)
        monitor.kill()
    return ended, (directory / "values").read_text()


def test_the_addresses_of_host_and_pod(tmp_path):
    ended, written = write_later(tmp_path, *ALL_VALUES)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert written == (
        "PODSLICE_HOST_IP=10.0.0.2\nPODSLICE_NODE_NAME=host-a\nPODSLICE_POD_IP=pod-of-sleep\n"
    )


def test_a_host_without_a_route_has_a_name_only(tmp_path):
    ended, _ = write_later(tmp_path, *ALL_VALUES, ip="#!/bin/sh\nexit 2\n")
    assert (ended.returncode, ended.stderr) == (1, b"there is no route and so no address\n")
    ended, written = write_later(tmp_path, "PODSLICE_NODE_NAME", ip="#!/bin/sh\nexit 2\n")
    assert (ended.returncode, written) == (0, "PODSLICE_NODE_NAME=host-a\n")


PODMAN_OF_IMAGES = """#!/bin/sh
cd "$(dirname "$0")" || exit
case "$1 $2" in
  "image exists") [ -e image ] ;;
  "pull --quiet") echo id; cp registry image ;;
  "image inspect") cat image ;;
esac
"""


def check_user(directory, policy, **users):
    """Run the check of an image with these users in the registry, and in podman's store."""
    (directory / "podman").write_text(PODMAN_OF_IMAGES)
    (directory / "podman").chmod(0o755)
    for name, user in users.items():
        (directory / name).write_text(f"{user}\n")
    script = _CHECK_USER.replace(PODMAN, str(directory / "podman"))
    arguments = ["sh", "-c", script, "sh", "app:1", policy]
    ended = subprocess.run(arguments, check=False, capture_output=True, text=True)
    assert ended.stdout == ""
    assert bool(ended.stderr) is bool(ended.returncode)
    return ended.stderr


@pytest.mark.parametrize("user", ["1000", "1000:0", "65534:65534"])
def test_an_image_with_another_user_than_root_runs(tmp_path, user):
    assert check_user(tmp_path, "never", image=user) == ""


@pytest.mark.parametrize(
    ("user", "why"),
    [(user, "whose user is root") for user in ("", "0", "0:1000", "00")]
    + [(user, f"whose user {user} is not a number") for user in ("root", "nginx", "+1")],
)
def test_an_image_whose_user_may_be_root_does_not_run(tmp_path, user, why):
    message = f"runAsNonRoot does not allow the image, {why}; set runAsUser\n"
    assert check_user(tmp_path, "never", image=user) == message


def test_the_image_that_is_checked_has_been_pulled(tmp_path):
    assert "root" in check_user(tmp_path, "never", image="0", registry="1")
    assert "root" in check_user(tmp_path, "missing", image="0", registry="1")
    assert check_user(tmp_path, "always", image="0", registry="1") == ""
    (tmp_path / "image").unlink()
    assert "No such file" in check_user(tmp_path, "never", registry="1")
    assert check_user(tmp_path, "missing", registry="1") == ""
    for each in ("image", "registry"):
        (tmp_path / each).unlink()
    for policy in ("always", "missing", "never"):
        assert "No such file" in check_user(tmp_path, policy)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param((4096, 4096), "", id="not-larger"),
        pytest.param((8192, 8192), "evict web\nevict web\n", id="again-until-the-pod-stops"),
        pytest.param((0, 8192), "evict web\n", id="measured-again"),
    ],
)
def test_a_volume_larger_than_its_limit_has_its_pod_evicted(tmp_path, sizes, expected):
    file = tmp_path / "volume/file"
    file.parent.mkdir()
    # each sleep is followed by one measurement
    sleeps = "".join(f"{n}) head -c {size} /dev/zero >{file};;" for n, size in enumerate(sizes))
    count = tmp_path / "count"
    count.write_text("0")
    stub(
        tmp_path / "sleep",
        f"n=$(cat {count}); echo $((n+1)) >{count}; case $n in {sleeps} *) exit 1; esac",
    )
    stub(
        tmp_path / "podman",
        f'[ "$*" = "volume inspect --format {{{{.Mountpoint}}}} name" ] && echo {file.parent}',
    )
    own = file.parent.stat().st_blocks * 512
    script = _WATCH.replace(PODMAN, str(tmp_path / "podman"))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    arguments = ["sh", "-c", script, "sh", "name", str(own + 4096), "echo", "evict", "web"]
    assert subprocess.check_output(arguments, env=environment, text=True) == expected


def stub(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)

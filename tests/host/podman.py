"""Podman in a machine: its packages, a root directory, an image made of it, and cleaning up."""

from pathlib import Path

from tests.lab import extras, state
from tests.lab.demo import PROGRAM
from tests.lab.deps import run_tool
from tests.lab.recipe import DEFAULT_SUITE
from tests.lab.remote import RemoteMachine

PACKAGES = ("podman", "catatonit", "aardvark-dns")
NOT_NEEDED = (
    *("podman-testing", "rootlessport", "netavark-dhcp-proxy-client", "usr/lib/cni"),
    *("usr/bin/gpg*", "usr/bin/dirmngr*", "usr/sbin"),
)
IMAGE = "localhost/app:1"
LONG_SEC = 600
"""A start takes half a minute in a virtual machine with a processor of its own."""
# as PID 1 of its namespace it would ignore SIGTERM without a handler
WAIT = 'trap "exit 0" TERM; sleep 1000 & wait'
# a root directory for containers, from files of the image
MAKE_ROOTFS = """
mkdir -p /rootfs/bin /rootfs/dev /rootfs/proc /rootfs/sys /rootfs/tmp /rootfs/etc
chmod 1777 /rootfs/tmp
cp /usr/bin/busybox /rootfs/bin/
for name in sh sleep cat dd env httpd id ls mkdir test touch; do ln -s busybox /rootfs/bin/$name; done
cp -a /rootfs /home/lab/rootfs
chown -R lab:lab /home/lab/rootfs
: > /etc/subuid
: > /etc/subgid
"""
_IMPORT = (
    """podman import --change 'CMD ["sh", "-c", "trap \\"exit 0\\" TERM; sleep 100000 & wait"]' -"""
)
MAKE_IMAGE = f"tar -C /rootfs -c . | {_IMPORT}"
MAKE_IMAGE_OF_USER = f"""
cd /home/lab
export HOME=$PWD
tar -C rootfs --owner=0 --group=0 -c . | {_IMPORT} {IMAGE}
"""
# without a program for the firewall, and without an image of its own for the first container of pods
CONFIGURATION = """
[network]
firewall_driver = "none"
[engine]
infra_image = "{image}"
"""
# The root directory of a namespace is an overlay already, and podman's storage cannot be on it. A user
# may mount proc only where another mount of it hides nothing. Where cgroup v2 has no controllers, crun
# refuses limits, and podman requests one for processes in any case.
FOR_NAMESPACE = """
for directory in /var/lib/containers /home/lab/.local; do
  mkdir -p $directory
  mount -t tmpfs tmpfs $directory
done
chown lab:lab /home/lab/.local
mkdir -p /run/whole/proc /run/whole/sys
mount -t proc proc /run/whole/proc
mount -t sysfs -o ro sysfs /run/whole/sys
"""
ASKED = ".asked"
"""Suffix of the configuration that podman wrote for crun."""
WITHOUT_LIMITS = f"""#!/bin/sh
for word; do
  [ "$before" != --bundle ] && [ "$before" != -b ] || bundle=$word
  before=$word
done
limit='"\\(cpu\\|memory\\|pids\\)":{{[^{{}}]*}}'
[ -z "$bundle" ] || sed -i{ASKED} "s/$limit,//g; s/,\\?$limit//g" "$bundle/config.json"
exec /usr/bin/crun "$@"
"""
CONFIGURATION_WITHOUT_LIMITS = """
[engine.runtimes]
crun = ["/usr/local/bin/crun"]
"""
CLEAN = """
services=$(systemctl list-units --all --plain --no-legend 'podslice-*.service' '*-pod.service' \\
    '*-volume.service' '*-network.service' |
  while read -r unit load _; do [ "$load" = not-found ] || echo "$unit"; done)
if [ -n "$services" ]; then
  systemctl stop --no-block $services  # so that none starts again
  podman pod rm --all --force --time=0 || :
  systemctl stop $services
fi
rm -rf /etc/containers/systemd /etc/systemd/system/podslice-*.service
rm -rf /home/lab/.config/containers /home/lab/.config/systemd
podman pod rm --all --force --time=0
podman rm --all --force --time=0
podman volume rm --all --force
podman network prune --force
systemctl daemon-reload
"""


def set_up(machine: RemoteMachine) -> None:
    """Install podman and the source tree's podslice in a machine, with a root directory and an image."""
    machine.put("/usr/bin/podslice", PROGRAM, mode=0o755)
    install(machine, IMAGE)


def install(machine: RemoteMachine, image: str) -> None:
    """Install podman in a machine, with a root directory, and an image of this name."""
    unpack(machine)
    configure(machine, CONFIGURATION.format(image=image))
    # the units of users wait for it, 90 s where nothing starts it
    machine.run("systemctl", "start", "network-online.target")
    make = f"{MAKE_ROOTFS}{MAKE_IMAGE} {image}"
    machine.run("sh", "-ec", make)


def configure(machine: RemoteMachine, configuration: str = "") -> None:
    """Write podman's configuration, with what it needs in a namespace."""
    if machine.kind == "namespace":
        machine.run("sh", "-ec", FOR_NAMESPACE)
        if not machine.has_controllers:
            machine.put("/usr/local/bin/crun", WITHOUT_LIMITS, mode=0o755)
            configuration += CONFIGURATION_WITHOUT_LIMITS
    machine.put("/etc/containers/containers.conf", configuration)


def measure_volumes_often(machine: RemoteMachine) -> None:
    """Let the services that measure volumes do so each second, not each minute."""
    machine.put("/often/sleep", "#!/bin/sh\nexec /usr/bin/sleep 1\n", mode=0o755)
    for manager in ("system", "user"):
        place = f"/etc/systemd/{manager}/podslice-size-.service.d/often.conf"
        machine.put(place, "[Service]\nEnvironment=PATH=/often:/usr/bin\n")


def unpack(machine: RemoteMachine) -> None:
    """Install the files of podman in a machine, with its generator."""
    extras.unpack(machine, DEFAULT_SUITE, PACKAGES, left_out=NOT_NEEDED)


def extract_generator(directory: Path) -> Path:
    """Extract podman's package in a directory of this host, and return the generator."""
    (deb,) = extras.fetch(DEFAULT_SUITE, PACKAGES).glob("podman_*.deb")
    run_tool("dpkg-deb", "--extract", str(deb), str(directory))
    return directory / "usr/libexec/podman/quadlet"


def clean(machine: RemoteMachine) -> None:
    """Remove quadlets, containers, volumes and pods, but neither image nor root directory."""
    machine.run("sh", "-ec", CLEAN)
    assert state.restore(machine) == []

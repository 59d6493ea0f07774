"""Machines of the lab as hosts of a fleet: with podslice's package, sshd and an administrator."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.host.scenario import BIG
from tests.lab import deps, extras, state
from tests.lab.namespace import Namespace

SUITE = "trixie"
PACKAGES = ("openssh-server", "sudo")
ADMIN = "admin"
CAPACITY = BIG[1].removeprefix("capacity=")
"""As of the hosts in examples/fleet: what fits must not depend on the machine of the tests."""
CONNECT = Path(__file__).with_name("connect.py")
DEB = "/root/podslice.deb"
# accounts, keys and configuration, as the scripts of the packages and an administrator leave them
ADMINISTER = f"""
set -e
useradd --system --home-dir /run/sshd --shell /usr/sbin/nologin sshd
useradd --create-home --shell /bin/bash --password '*' {ADMIN}
echo '{ADMIN} ALL=(ALL:ALL) NOPASSWD: ALL' >/etc/sudoers.d/{ADMIN}
install -d -m 700 -o {ADMIN} -g {ADMIN} /home/{ADMIN}/.ssh
install -m 600 -o {ADMIN} -g {ADMIN} /root/key.pub /home/{ADMIN}/.ssh/authorized_keys
printf '%s\\n' 'UsePAM yes' 'PasswordAuthentication no' 'UseDNS no' \\
  'HostKey /etc/ssh/ssh_host_ed25519_key' >/etc/ssh/sshd_config
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
"""
INSTALL = f"dpkg --install --force-unsafe-io {DEB} >/dev/null && rm {DEB}"
# What dpkg has installed, with the code that it has compiled, for other hosts of the same release: half
# the time.
INSTALLED = "/root/installed.tar"
PACK = f"""
cd / && {{ dpkg --listfiles podslice; find /usr/lib/python3/dist-packages/podslice -name '*.pyc'; }} |
  while read -r path; do [ -d "$path" ] || echo "$path"; done |
  tar --files-from - -cf {INSTALLED}
"""
UNPACK = f"""
set -e
tar -C / -xf {INSTALLED}
rm {INSTALLED}
systemd-sysusers podslice.conf 2>/dev/null
systemd-tmpfiles --create podslice.conf
"""
START = f"""
set -e
mkdir -p /etc/podslice/podslice.toml.d
echo 'capacity = "{CAPACITY}"' >/etc/podslice/podslice.toml.d/10-size.toml
systemctl daemon-reload
systemctl start ssh.service
"""
# what a play can change: files, and the properties of units besides those of logins
OBSERVE = f"""
properties=Id,ActiveState,UnitFileState,MainPID,CPUWeight,CPUQuotaPerSecUSec,AllowedCPUs
properties=$properties,MemoryMin,MemoryLow,MemoryHigh,MemoryMax,TasksMax
units=$(systemctl list-units --all --plain --no-legend --type=slice | while read -r unit _; do
  case $unit in user.*|user-*|system-*) ;; *) echo "$unit" ;; esac
done)
systemctl show --property=$properties -- $units \\
  podslice-agent.service podslice-apply.service containerd.service
find /etc/podslice /etc/systemd /run/systemd/system.control /run/podslice /home/{ADMIN}/.config \\
  -type f ! -name lock ! -name agent.json -exec sha256sum {{}} + 2>/dev/null | sort
true
"""
# podslice and the units that tests add, as after INSTALL
RESET = f"""
systemctl disable --quiet --now podslice-agent.service podslice-agent.socket podslice-apply.service
cd /etc/podslice && rm -rf podslice.toml manifests/* podslice.toml.d/[!1]*
rm -rf /etc/systemd/system/containerd.service* /etc/systemd/system/*.slice.d \\
  /etc/systemd/system.control/* /home/{ADMIN}/.config
systemctl daemon-reload
systemctl start ssh.service
"""


class Host:
    """A machine, by its name in the inventory."""

    def __init__(self, name, machine):
        self.name, self.machine = name, machine
        self.run = machine.run

    def sh(self, script):
        """Return the output of a shell script."""
        return self.run("sh", "-c", script).stdout

    def observe(self):
        """Return everything that a play can change, as text."""
        return self.sh(OBSERVE)

    def show(self, unit, name):
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).stdout.strip()

    def reset(self):
        self.run("sh", "-c", RESET)
        state.clean(self.machine)

    def installed(self):
        """Return an archive of the files of podslice, of a host with the package."""
        self.sh(PACK)
        return self.machine.get(INSTALLED)

    @property
    def public_key(self):
        return self.machine.get("/etc/ssh/ssh_host_ed25519_key.pub").decode().strip()


class Keys:
    """A directory with the key of the administrator, and the configuration of ssh for each host."""

    def __init__(self, directory):
        self.directory = directory
        self._key = directory / "key"
        deps.ensure_deps()
        deps.run_tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._key))
        self.configuration = directory / "ssh_config"
        self._known = directory / "known_hosts"
        self.configuration.write_text("")
        self._known.write_text("")

    @property
    def public(self):
        return self._key.with_suffix(".pub").read_bytes()

    def add(self, host, connect):
        """Let ssh reach a host by a command that passes it a socket."""
        with self.configuration.open("a") as file:
            file.write(
                f"Host {host.name}\n  User {ADMIN}\n  IdentityFile {self._key}\n"
                f"  UserKnownHostsFile {self._known}\n  StrictHostKeyChecking yes\n"
                f"  ProxyCommand {connect}\n  ProxyUseFdpass yes\n"
            )
        with self._known.open("a") as file:
            file.write(f"{host.name} {host.public_key}\n")


def set_up(host, key, installed):
    """Add podslice, sshd, and a user who may log in and become root.

    `installed` is an archive of the files of podslice, or None if the machine has the package.
    """
    extras.unpack(host.machine, SUITE, PACKAGES)
    host.machine.put("/root/key.pub", key)
    host.sh(ADMINISTER)
    if installed is None:
        host.sh(INSTALL)
    else:
        host.machine.put(INSTALLED, installed)
        host.sh(UNPACK)
    host.sh(START)


@contextmanager
def boot(names, keys, deb):
    """Boot a host for each name, which sshd makes reachable on its own loopback interface."""
    with ExitStack() as machines:
        hosts, installed = {}, None
        for name in names:
            host = Host(name, machines.enter_context(Namespace(SUITE)))
            if installed is None:
                host.machine.put(DEB, deb.read_bytes())
            set_up(host, keys.public, installed)
            installed = installed or host.installed()
            keys.add(host, f"nsenter -t {host.machine.pid} -n python3 -I -S {CONNECT}")
            hosts[name] = host
        yield hosts

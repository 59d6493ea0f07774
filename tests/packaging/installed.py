"""Machines with podslice's units, groups and polkit rule installed, and a user for each role."""

from pathlib import Path

from tests.lab import fixtures
from tests.packaging.extras import boot_with

UNITS = Path(__file__).resolve().parents[2] / "units"
PLACES = {
    "*.service": "/usr/lib/systemd/system",
    "*.slice": "/usr/lib/systemd/system",
    "*.socket": "/usr/lib/systemd/system",
    "podsandbox-.slice.d/*": "/usr/lib/systemd/system/podsandbox-.slice.d",
    "catalog/*": "/usr/lib/systemd/catalog",
    "sysusers.d/*": "/usr/lib/sysusers.d",
    "tmpfiles.d/*": "/usr/lib/tmpfiles.d",
    "system-preset/*": "/usr/lib/systemd/system-preset",
    "user/*.service": "/usr/lib/systemd/user",
    "user/*.slice": "/usr/lib/systemd/user",
    "user/podsandbox-.slice.d/*": "/usr/lib/systemd/user/podsandbox-.slice.d",
    "user-preset/*": "/usr/lib/systemd/user-preset",
    "polkit/*.rules": "/usr/share/polkit-1/rules.d",
}
SERVICE, AGENT = "podslice-apply.service", "podslice-agent.service"
# not supported by systemd 252; excluded from packages for it
DROP_INS = "podslice-*.d/*.conf"
MANIFESTS = "/etc/podslice/manifests"
# like an installed podslice, with the source tree in place of the package
PROGRAM = '#!/bin/sh\nPYTHONPATH=/src exec python3 -m podslice "$@"\n'
ROLES = {"alice": "podslice-admin", "bob": "podslice", "carol": ""}


def boot(suite):
    fixtures.need_lab()
    machine = boot_with(suite, "polkitd")
    install_source(machine, with_drop_ins=suite != "bookworm")
    for user, group in ROLES.items():
        machine.run("useradd", "--create-home", *(("-G", group) if group else ()), user)
    machine.run("systemctl", "restart", "polkit.service")
    return machine


def install_source(machine, *, with_drop_ins=True):
    """Install what the packages contain, with the source tree at /src in place of the library."""
    for pattern, place in PLACES.items():
        for path in UNITS.glob(pattern):
            machine.put(f"{place}/{path.name}", path.read_text())
    for path in UNITS.glob(DROP_INS) if with_drop_ins else ():
        machine.put(f"/usr/lib/systemd/system/{path.relative_to(UNITS)}", path.read_text())
    machine.put("/usr/bin/podslice", PROGRAM, mode=0o755)
    machine.run("ln", "-sfn", "/src", "/usr/share/doc/podslice")
    machine.run("systemd-sysusers", "podslice.conf")
    machine.run("systemd-tmpfiles", "--create", "podslice.conf")
    machine.run("systemctl", "daemon-reload")


def run_as(machine, user, *argv):
    return machine.run("runuser", "-u", user, "--", *argv, check=False).exit_code


def reload_agent(machine):
    """Reload the agent, which does so after systemctl has sent the signal, and wait for its end."""
    machine.run("systemctl", "reload", AGENT)
    wait_until(machine, f"systemctl show -P ActiveState {AGENT} | grep -qx active")


def wait_until(machine, condition):
    """Wait in the machine until a shell command succeeds."""
    machine.run("sh", "-c", f"until {condition}; do sleep 0.05; done")

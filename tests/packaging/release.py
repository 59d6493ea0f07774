"""A machine of a release of Debian on which the package is installed, upgraded and removed."""

from __future__ import annotations

from podslice.model.event import Kind
from tests.host.scenario import show
from tests.packaging.builds import install, install_copy
from tests.packaging.installed import AGENT, SERVICE

SUITES = ("trixie", "bookworm")
UNITS = (SERVICE, AGENT, "podslice-agent.socket", "podruntime.slice")
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    resources:
      requests: {cpu: 10m, memory: 4Mi}
      limits: {cpu: 100m, memory: 8Mi}
"""
# files of the machine: databases of dpkg and apt, logs, and files that systemd itself writes
PASSED_OVER = (
    *("/proc", "/sys", "/dev", "/run", "/tmp", "/src", "/root/deb", "/var/tmp"),
    *("/var/lib/dpkg", "/var/lib/apt", "/var/cache", "/var/log", "/var/lib/systemd"),
)


class Host:
    """A machine and the values that tests keep about it."""

    def __init__(self, machine, suite, packages):
        self.machine, self.suite, self._packages = machine, suite, packages
        self.run = machine.run
        self.seen = {}

    def install_present(self):
        install(self.machine, self._packages.get(self.suite))

    def copy_present(self):
        """Install what apt leaves in a namespace of the same release."""
        install_copy(self.machine, self.suite, self._packages.get(self.suite))

    def install_next(self):
        install(self.machine, self._packages.next(self.suite))

    def podslice(self, *arguments, check=True):
        return self.run("podslice", *arguments, check=check)

    def states(self):
        """Return for each unit of the package whether it is enabled and active."""
        shown = {name: show(self.machine, name, "UnitFileState", "ActiveState") for name in UNITS}
        return {name: tuple(sorted(state.values())) for name, state in shown.items()}

    def files(self):
        skip = " -o ".join(f"-path {path}" for path in PASSED_OVER)
        found = self.run("sh", "-c", f"find / -xdev \\( {skip} \\) -prune -o -print").stdout
        lines = found.splitlines()
        return {line for line in lines if "__pycache__" not in line or "podslice" in line}

    def explained(self):
        """Return the kinds of events that the journal can explain."""
        listed = self.run("journalctl", "--list-catalog").stdout
        return {kind for kind in Kind if kind.message_id in listed}

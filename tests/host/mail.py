"""The pod `mail-0` of examples/shop, which has all that `podslice apply --start` runs."""

import re
from pathlib import Path

from podslice.model.pod import default_uid
from podslice.model.unit import control_group_of
from tests.host.scenario import enforced, kernel

MANIFEST = Path(__file__).parents[2] / "examples/shop/mail.yaml"
IMAGE = "docker.io/library/busybox:1.37"
MI = 2**20
POD_ID = f"pod{default_uid('shop', 'mail-0').replace('-', '_')}"
GROUP = control_group_of(f"kubepods-burstable-{POD_ID}.slice")
MAIL, QUEUE, TEMPLATES = (
    f"podslice-{POD_ID}-{name}.service" for name in ("mail", "queue", "compile-templates")
)
PROBERS = {name: f"podslice-probe-{POD_ID}-{name}.service" for name in ("mail", "queue")}
FILES = (
    *("cpu.max", "cpu.weight", "memory.max", "memory.low"),
    *("memory.min", "memory.high", "memory.swap.max"),
)
_REST = ("0", "max", "max")
VALUES = {
    "": ("200000 100000", "19", str(128 * MI), str(80 * MI), *_REST),
    f"/{MAIL}": ("100000 100000", "4", str(64 * MI), str(48 * MI), *_REST),
    f"/{QUEUE}": ("100000 100000", "1", str(64 * MI), str(32 * MI), *_REST),
}
"""By control group: the values of FILES, as the manifest states."""
LETTER = "From: shop@example.org\nYour order is on its way.\n"
STARTED = "started as mail, 10 characters\n"
RESTARTED = f"{STARTED}stopped\n{STARTED}"
"""Its log after its liveness probe has failed: it got its signal, and its hook did not run."""
_ADJUSTMENTS = """
for each in "$@"; do
  read -r pid <"$(echo "$each"/libpod-payload-*/cgroup.procs)"
  cat /proc/$pid/oom_score_adj
done
"""
_AWAIT = """
while log=$(cat "$1"); [ "$log" != "$2" ]; do
  case $2 in
    "$log"*) sleep 0.3 ;;
    *) echo "$log" >&2; exit 1 ;;
  esac
done
"""


class MailPod:
    """The pod in a machine."""

    def __init__(
        self,
        machine,
        *,
        manager="",
        storage="/var/lib/containers/storage",
        files="/etc/containers/systemd",
    ):
        """`manager` is the control group of a user's service manager."""
        self._machine = machine
        self._group = f"{manager}{GROUP}"
        self._volumes = f"{storage}/volumes/emptyDir-shop__mail-0"
        self._files = files

    def check(self):
        """Check its values in the kernel, its processes, and what its init container has written."""
        found = {
            name: tuple(enforced(self._machine, f"{self._group}{name}", file) for file in FILES)
            for name in VALUES
        }
        assert found == VALUES
        for name in (MAIL, QUEUE):
            events = kernel(self._machine, f"{self._group}/{name}", "cgroup.events")
            assert events.startswith("populated 1")
        groups = [f"/sys/fs/cgroup{self._group}/{name}" for name in (MAIL, QUEUE)]
        seen = self._machine.run("sh", "-ec", _ADJUSTMENTS, "sh", *groups).stdout.split()
        assert seen == [self._adjustment("mail"), self._adjustment("queue")]
        order = self._machine.get(f"{self._volumes}_templates/_data/order").decode()
        assert order == LETTER

    def _adjustment(self, container):
        text = self._machine.get(f"{self._files}/shop__mail-0_{container}.container").decode()
        (found,) = re.findall(r"--oom-score-adj=(\d+)", text)
        return found

    def queue(self, name):
        """Return a file of the volume that is shared with the sidecar."""
        return self._machine.get(f"{self._volumes}_queue/_data/{name}").decode()

    def wait_for_log(self, wanted):
        """Wait until the log of the container is this; fail once it can no longer become it."""
        file, words = f"{self._volumes}_queue/_data/log", wanted.rstrip("\n")
        self._machine.run("sh", "-c", _AWAIT, "sh", file, words)

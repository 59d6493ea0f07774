"""An image's systemd in namespaces of this host: native speed, ready in half a second."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from tests.lab import container_init, keeper
from tests.lab.cgroups import host_layout, is_systemd_host, unified_only
from tests.lab.image import Image, ensure_image
from tests.lab.machine import Kind
from tests.lab.recipe import DEFAULT_SUITE, UNIFIED_SUITES
from tests.lab.remote import RemoteMachine

AGENT_SOCKET = "run/podlab.sock"
BUS_SOCKET = "run/dbus/system_bus_socket"
BOOT_TIMEOUT_SEC = 300.0
SYSTEMD = ("/lib/systemd/systemd", "--system", "--log-level=notice", "--log-target=journal")


class Namespace(RemoteMachine):
    """A systemd in a temporary copy of an image, with its own cgroups.

    On a host with cgroup v1 it gets the v1 controllers cpu, cpuacct, memory and pids, otherwise v2. A
    suite whose systemd refuses v1 gets v2 there, too, without these controllers.
    The kernel is the host's: not suitable for tests of cgroup v2, OOM or pressure.
    """

    kind: Kind = "namespace"

    def __init__(
        self,
        suite: str = DEFAULT_SUITE,
        *,
        bind: Mapping[str, Path] | None = None,
        is_unified: bool = False,
    ) -> None:
        """Boot.

        Args:
            suite: the image.
            bind: directories of this host by their path inside, where they are read-only.
            is_unified: use cgroup v2 as if the suite's systemd refused v1.
        """
        image = ensure_image(suite)
        super().__init__("ns")
        try:
            self._start(image, bind or {}, is_unified=is_unified or suite in UNIFIED_SUITES)
            socket_path = Path(f"/proc/{self._held.pid}/root/{AGENT_SOCKET}")
            self._connect(socket_path, BOOT_TIMEOUT_SEC)
            self._wait_booted(BOOT_TIMEOUT_SEC)
        except BaseException:
            self.close()
            raise
        self.root = Path(f"/proc/{self.pid}/root")
        self.bus_address = f"unix:path={self.root / BUS_SOCKET}"

    def _start(self, image: Image, bind: Mapping[str, Path], *, is_unified: bool) -> None:
        layout = host_layout()
        is_unified = is_unified or layout.version == 2
        hierarchies = unified_only(layout) if is_unified else layout.hierarchies
        name = self._held.name
        scratch = self._held.dir / "scratch"
        scratch.mkdir()
        inside = container_init.Orders(
            root=str(image.root),
            scratch=str(scratch),
            log=str(self._held.dir / "log"),
            binds={target: str(source.resolve()) for target, source in bind.items()},
            cgroups=() if is_unified else tuple((h.dir_name, h.names) for h in hierarchies),
            argv=SYSTEMD,
        )
        orders = keeper.Orders(
            argv=(
                *(sys.executable, "-I", "-S", container_init.__file__),
                json.dumps(asdict(inside)),
            ),
            run_dir=str(self._held.dir),
            in_namespaces=True,
        )
        if layout.version == 1:
            cgroups = tuple(str(h.own / name) for h in hierarchies)
            self._held.start(replace(orders, cgroups=cgroups))
            return
        # on v2 a cgroup with processes has no children with controllers: not below that of this one
        top = str(hierarchies[0].mount_point)
        if is_systemd_host():
            scope = ("systemd-run", "--scope", "--quiet", "--collect", f"--unit={name}")
            prefix = (*scope, "--property=Delegate=yes", "--")
            self._held.start(replace(orders, delegated_at=top), prefix=prefix)
        else:
            self._held.start(replace(orders, cgroups=(f"{top}/{name}",), parent=top))

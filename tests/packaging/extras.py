"""Machines with more packages of their distribution than the image has."""

from pathlib import Path

from tests.lab.extras import fetch
from tests.lab.machine import Machine
from tests.lab.namespace import Namespace
from tests.lab.paths import source_dir


def boot_with(suite: str, *packages: str, bind: dict[str, Path] | None = None) -> Machine:
    """Yield a namespace with the source tree at /src, and packages of its release installed."""
    debs = {"/debs": fetch(suite, packages)} if packages else {}
    machine = Namespace(suite, bind={"/src": source_dir(), **debs, **(bind or {})})
    try:
        if packages:
            install = "dpkg --install --force-unsafe-io /debs/*.deb"
            machine.run("sh", "-c", install, env={"DEBIAN_FRONTEND": "noninteractive"})
    except BaseException:
        machine.close()
        raise
    return machine

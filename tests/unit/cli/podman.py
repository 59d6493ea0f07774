"""A systemd that has podman's generator, and a pod for it."""

import asyncio

from podslice.features.quadlet.transition import service_of
from tests.fake_systemd import FakeSystemd

WEB = """\
apiVersion: v1
kind: Pod
metadata: {name: web, uid: u1}
spec:
  containers:
  - name: app
    image: app
    volumeMounts: [{name: data, mountPath: /data}]
  - {name: log, image: log}
  volumes: [{name: data, emptyDir: {}}]
"""
SLICE = "kubepods-besteffort-podu1.slice"
POD, APP, LOG = "web-pod.service", "podslice-podu1-app.service", "podslice-podu1-log.service"
FILES = ["web.pod", "web_app.container", "web_data.volume", "web_log.container"]


class WithPodman(FakeSystemd):
    """A systemd whose reload makes units of quadlets; the service of a pod stops the others."""

    def __init__(self, directory):
        super().__init__()
        self.directory = directory
        self.made = set()
        self.slice = SLICE
        self.refused_files = set()
        self.restarts = {}
        """The restarts of services that do not become active."""

    async def start_existing(self, name, *, timeout_sec=None):
        await super().start_existing(name, timeout_sec=timeout_sec)
        if name in self.restarts:
            self._units[name].restarts = self.restarts[name]
            await asyncio.Event().wait()

    async def reload(self):
        await super().reload()
        for name in self.made:
            self.remove_file(name)
        files = [each for each in self.directory.glob("*.*") if each.is_file()]
        texts = {each.name: each.read_text() for each in files}
        self.made = {
            service_of(name, text) for name, text in texts.items() if name not in self.refused_files
        }
        for name in self.made:
            self.provide_file(name, Slice=self.slice, CPUWeight=1)

    async def stop(self, name, *, timeout_sec=None):
        await super().stop(name, timeout_sec=timeout_sec)
        if name == POD:
            for each in (APP, LOG):
                await super().stop(each)


def active(memory):
    """The services that are up."""
    return sorted(name for name in memory._units if name.endswith(".service"))

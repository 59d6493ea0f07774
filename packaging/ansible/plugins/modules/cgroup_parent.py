#!/usr/bin/python
# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: cgroup_parent
short_description: Returns the slice of a pod, and the options that start a container in it
description:
  - Runs C(podslice cgroup-parent). The result is for the modules of container runtimes, for unit
    files and for compose files.
  - Apply the pod first. A slice that does not exist is created by systemd without limits.
version_added: "0.1.0"
author:
  - Contributors to podslice (!UNKNOWN)
extends_documentation_fragment:
  - podslice.host.podslice
  - podslice.host.podslice.reads
options:
  pod:
    description: The pod, as V(NAME) or V(NAMESPACE/NAME).
    type: str
    required: true
  container:
    description: Include the limits of this container of the pod.
    type: str
  namespace:
    description: The namespace of a pod without one.
    type: str
  output:
    description:
      - The form of RV(line). V(podman) and V(docker) are options of C(run) and C(create),
        V(podman-pod) those of C(podman pod create), V(compose) keys of a service, V(systemd) a
        drop-in, V(quadlet) sections of a C(.container) file, V(oci) a part of C(config.json), and
        V(name) is the slice.
    type: str
    choices: [name, podman, podman-pod, docker, compose, systemd, quadlet, oci]
    default: podman
  definition:
    description:
      - Find the pod in this manifest, so that it need not be applied. Use it where the task also
        runs in check mode.
    type: raw
  src:
    description: Find the pod in this file or directory on the host.
    type: path
seealso:
  - module: podslice.host.pods
"""

EXAMPLES = r"""
- name: The slice of the pod
  podslice.host.cgroup_parent:
    pod: web
  register: parent

- name: A container of podman in it
  containers.podman.podman_container:
    name: nginx
    image: docker.io/library/nginx
    cgroup_parent: "{{ parent.slice }}"
    label: "{{ parent.labels }}"

- name: A container of docker in it
  community.docker.docker_container:
    name: nginx
    image: nginx
    cgroup_parent: "{{ parent.slice }}"
    labels: "{{ parent.labels }}"

- name: The drop-in of a service
  podslice.host.cgroup_parent:
    pod: web
    output: systemd
  register: drop_in

- name: The service in the pod
  ansible.builtin.copy:
    dest: /etc/systemd/system/nginx.service.d/50-podslice.conf
    content: "{{ drop_in.line }}\n"
    mode: "0644"
"""

RETURN = r"""
slice:
  description: The slice of the pod.
  returned: success
  type: str
  sample: kubepods-burstable-podweb.default.slice
control_group:
  description: The control group of the slice.
  returned: success
  type: str
exists:
  description: Whether the pod is applied, and its slice exists.
  returned: success
  type: bool
labels:
  description: Labels by which C(podslice status) finds a container that is outside its pod.
  returned: success
  type: dict
  sample: {io.podslice.pod: default/web}
line:
  description: The options or lines, in the requested form.
  returned: success
  type: str
  sample: --cgroup-parent=kubepods-burstable-podweb.default.slice
"""

from ..module_utils import cgroup_parent
from ..module_utils.glue import run_module


def main() -> None:
    """Run the module."""
    run_module(
        cgroup_parent.run,
        cgroup_parent.ARGUMENTS,
        mutually_exclusive=cgroup_parent.MUTUALLY_EXCLUSIVE,
    )


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: info
short_description: Returns the state of podslice on a host
description:
  - Returns whether the host and its pods are as they should be, with all problems and their
    remedies, the resources of the host, and the pods. Nothing is changed, and no privileges are
    needed; without them, manifests may be unknown.
  - An unhealthy host is not a failure of the module. Use P(ansible.builtin.assert#module) on
    RV(healthy), or P(ansible.builtin.group_by#module) to form groups of hosts.
version_added: "0.1.0"
author:
  - Contributors to podslice (!UNKNOWN)
extends_documentation_fragment:
  - podslice.host.podslice
  - podslice.host.podslice.reads
options:
  gather:
    description:
      - What to return. V(status) is the health, V(pods) the applied pods with their containers,
        V(node) the resources of the host and their reservations, V(doctor) whether the host meets the
        requirements, V(usage) what pods use, measured over half a second, and V(version) the
        versions of podslice, systemd and Python.
    type: list
    elements: str
    choices: [version, node, pods, status, doctor, usage]
    default: [node, pods, status]
seealso:
  - module: podslice.host.pods
"""

EXAMPLES = r"""
- name: The state of the host
  podslice.host.info:
  register: podslice

- name: A group for each state, in which later plays run
  ansible.builtin.group_by:
    key: "podslice_{{ 'healthy' if podslice.healthy else 'unhealthy' }}"

- name: Every problem with its remedy
  ansible.builtin.debug:
    msg: "{{ item.object }}: {{ item.message }}; {{ item.hint }}"
  loop: "{{ podslice.problems }}"

- name: Whether a host can have pods
  podslice.host.info:
    gather: [doctor]
  register: requirements
  failed_when: not requirements.doctor.passed
"""

RETURN = r"""
podslice_version:
  description: The version of podslice on the host.
  returned: success
  type: str
  sample: 0.1.0
healthy:
  description: Whether there is no problem.
  returned: when V(status) is gathered
  type: bool
problems:
  description: Problems, with their remedies.
  returned: when V(status) is gathered
  type: list
  elements: dict
  sample: [{kind: unit-differs, object: kubepods.slice, message: "CPUWeight is 5, should be 200",
            hint: "to restore it: podslice apply"}]
in_sync:
  description: Whether C(podslice apply) would change none of the applied pods.
  returned: when V(status) is gathered
  type: bool
agent_pid:
  description: The process of a running agent. Null without one.
  returned: when V(status) is gathered
  type: int
conditions:
  description: The conditions of the node, such as C(MemoryPressure).
  returned: when V(status) is gathered
  type: list
  elements: str
pending:
  description: Pods that do not run as their manifests state, with the reasons.
  returned: when V(status) is gathered
  type: list
  elements: dict
evicted:
  description: Pods that were evicted.
  returned: when V(status) is gathered
  type: list
  elements: dict
orphans:
  description: Slices that belong to no pod.
  returned: when V(status) is gathered
  type: list
  elements: str
strays:
  description: Processes of pods outside of their slices.
  returned: when V(status) is gathered
  type: list
  elements: dict
terminating:
  description: Pods that are being stopped.
  returned: when V(status) is gathered
  type: list
  elements: str
unconfirmed:
  description: Values of reserved slices that are not confirmed.
  returned: when V(status) is gathered, and there are any
  type: dict
reserved_slices:
  description: Values that podslice has set outside of its slices, with the previous ones.
  returned: when V(status) is gathered, and there are any
  type: list
  elements: dict
configuration:
  description: The configuration that is used because the files are invalid, and their problems.
  returned: when V(status) is gathered, and the configuration files are invalid
  type: dict
pods:
  description: The applied pods, by NAMESPACE/NAME, with slice, state, usage and containers.
  returned: when V(pods) is gathered
  type: dict
node:
  description: Capacity, reservations, allocatable, requests and what is free.
  returned: when V(node) is gathered
  type: dict
doctor:
  description: Whether all checks passed, and the findings with their effects and fixes.
  returned: when V(doctor) is gathered
  type: dict
usage:
  description: What the node, its groups and its pods use, as in C(podslice top).
  returned: when V(usage) is gathered
  type: dict
version:
  description: The versions of podslice, systemd, Python and the kernel.
  returned: when V(version) is gathered
  type: dict
"""

from ..module_utils import info
from ..module_utils.glue import run_module


def main() -> None:
    """Run the module."""
    run_module(info.run, info.ARGUMENTS)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: node
short_description: Reserves resources of a host for its system and its container runtimes
description:
  - Runs C(podslice node init), which computes reservations for the size of the host and writes them
    to C(/etc/podslice/podslice.toml), and puts the services of installed container runtimes into
    C(podruntime.slice). Or C(podslice node reset), which removes what C(node init) has written.
  - Files that others have written or modified are never changed. The module then fails and names
    them.
  - After a change of unit files the module reloads systemd. It restarts no service.
version_added: "0.1.0"
author:
  - Contributors to podslice (!UNKNOWN)
extends_documentation_fragment:
  - podslice.host.podslice
  - podslice.host.podslice.changes
options:
  state:
    description:
      - V(initialized) writes reservations where there are none, and adds what is missing, such as
        the drop-in of a runtime that was installed since.
      - V(reset) removes the files of C(node init).
    type: str
    choices: [initialized, reset]
    default: initialized
  reservations:
    description: What is reserved. Without it, podslice computes it for the size of the host.
    type: dict
    suboptions:
      like:
        description:
          - Reserve what this provider reserves on its nodes. Without it, the lowest of the three.
        type: str
        choices: [gke, eks, aks]
      pods:
        description: The number of pods to reserve for. podslice assumes 30.
        type: int
      kube:
        description:
          - Reserve these amounts for container runtimes and podslice instead of computed ones, as a
            mapping of resources to quantities, or as a text, V(cpu=500m,memory=1Gi).
        type: raw
      system:
        description:
          - Reserve these amounts for the daemons of the system instead of computed ones.
        type: raw
      refresh:
        description:
          - Compute reservations again that C(node init) has written before. They depend on the
            memory that the system uses at this time, so that the task changes them often.
        type: bool
        default: false
  confirm_seconds:
    description:
      - Apply the values of the configuration now, those of reserved slices on trial. systemd on the
        host restores the old ones after this time, unless they are confirmed.
      - The module confirms them in the same task, over a second, new connection. If no login
        succeeds in this time, the values are restored without any connection, and the task fails.
      - Without this option, the configuration takes effect with the next C(podslice apply) or
        M(podslice.host.pods).
    type: int
notes:
  - O(scope=user) is not supported, because reservations are those of the host.
  - O(cgroup_root) has an effect only with O(confirm_seconds).
  - In check mode, O(confirm_seconds) shows the changes of slices only if no file would change.
seealso:
  - module: podslice.host.config
"""

EXAMPLES = r"""
- name: Reserve what a host of this size needs
  podslice.host.node:
  register: node

- name: Restart the container runtimes that were moved
  ansible.builtin.systemd_service:
    name: "{{ item }}"
    state: restarted
  loop: "{{ node.needs_restart }}"

- name: Reserve as a node of GKE, and enforce what the configuration enforces
  podslice.host.node:
    reservations:
      like: gke
    confirm_seconds: 60

- name: Reserve what the inventory states
  podslice.host.node:
    reservations:
      kube: {cpu: 500m, memory: 1Gi}
      system: {cpu: 500m, memory: "{{ '2Gi' if 'build' in group_names else '1Gi' }}"}

- name: Remove all of it
  podslice.host.node:
    state: reset
"""

RETURN = r"""
capacity:
  description: The resources of the host.
  returned: always
  type: dict
  sample: {cpu_milli: 4000, memory_bytes: 8589934592}
reserved:
  description: What is reserved, by its purpose.
  returned: always
  type: dict
allocatable:
  description: What pods may request. Null if the configuration is invalid.
  returned: always
  type: dict
  sample: {cpu_milli: 3820, memory_bytes: 7535919104}
written:
  description: The files that were written, or would be.
  returned: always
  type: list
  elements: str
removed:
  description: The files that were removed, or would be.
  returned: always
  type: list
  elements: str
needs_restart:
  description:
    - The running services that must be restarted to be in the slice where their drop-in puts them.
      It includes those that an earlier run has moved and that were not restarted since.
  returned: always
  type: list
  elements: str
  sample: [containerd.service]
needs_reload:
  description: The services that must be reloaded if they run.
  returned: always
  type: list
  elements: str
  sample: [podslice-agent.service]
unconfirmed:
  description:
    - The values of reserved slices that were set on trial. They are confirmed when the task ends.
  returned: with O(confirm_seconds), if such values changed
  type: dict
confirmed:
  description: Whether the values were confirmed over a new connection.
  returned: with O(confirm_seconds), if such values changed
  type: bool
reverted:
  description:
    - Whether the old values are restored. Null if the host cannot be reached to verify it, which does
      not prevent it.
  returned: if the values were not confirmed
  type: bool
"""

from ..module_utils import node
from ..module_utils.glue import run_module


def main() -> None:
    """Run the module."""
    run_module(node.run, node.ARGUMENTS)


if __name__ == "__main__":
    main()

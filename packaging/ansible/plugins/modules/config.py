#!/usr/bin/python
# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: config
short_description: Writes the configuration of podslice
description:
  - Writes a configuration file of podslice, C(/etc/podslice/podslice.toml) or a drop-in beside it.
  - Before anything is written, podslice validates the configuration as a whole, as it would be with
    this file. All problems are reported at once.
  - The configuration takes effect with the next C(podslice apply) or M(podslice.host.pods), and in a
    running agent when it is reloaded.
version_added: "0.1.0"
author:
  - Contributors to podslice (!UNKNOWN)
extends_documentation_fragment:
  - podslice.host.podslice
  - podslice.host.podslice.changes
options:
  settings:
    description:
      - The options, by their keys in C(podslice.toml), which are the kubelet's. Values may be texts,
        lists or mappings, as podslice.toml(5) describes.
      - Required with O(state=present). The file has these options and no others.
    type: dict
  drop_in:
    description:
      - The name of the drop-in in C(/etc/podslice/podslice.toml.d). C(.toml) is added if it is missing.
        Drop-ins are read in the order of their names, and later ones override earlier ones.
      - An empty name is that of C(/etc/podslice/podslice.toml) itself, which P(podslice.host.node#module)
        writes, so that only one of both modules can manage it.
    type: str
    default: 50-ansible
  state:
    description: Whether the file exists.
    type: str
    choices: [present, absent]
    default: present
notes:
  - O(scope=user) is not supported, because the configuration is that of the host.
  - O(cgroup_root) has no effect. The option C(cgroup-root) of O(settings) states it.
seealso:
  - module: podslice.host.node
  - module: podslice.host.pods
"""

EXAMPLES = r"""
- name: Reserve resources for the system, and enforce it
  podslice.host.config:
    settings:
      system-reserved: {cpu: 500m, memory: 1Gi}
      system-reserved-cgroup: /system.slice
      enforce-node-allocatable: [pods, system-reserved]
      eviction-hard: memory.available<200Mi
  notify: Reload podslice-agent   # systemctl reload podslice-agent.service

- name: Without the drop-in of an earlier version of this playbook
  podslice.host.config:
    drop_in: 20-old
    state: absent
"""

RETURN = r"""
path:
  description: The file.
  returned: always
  type: str
  sample: /etc/podslice/podslice.toml.d/50-ansible.toml
previous:
  description: The text of the file before. Null if it did not exist.
  returned: always
  type: str
effective:
  description: The options that are set by all configuration files together, by key.
  returned: always
  type: dict
  sample: {"eviction-hard": "memory.available<200Mi"}
problems:
  description: What would be invalid, with its places.
  returned: on failure because of an invalid configuration
  type: list
  elements: dict
"""

from ..module_utils import config
from ..module_utils.glue import run_module


def main() -> None:
    """Run the module."""
    run_module(config.run, config.ARGUMENTS)


if __name__ == "__main__":
    main()

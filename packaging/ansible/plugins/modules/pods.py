#!/usr/bin/python
# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: pods
short_description: Applies, keeps and removes pods of podslice
description:
  - Gives groups of processes on a host a budget, as Kubernetes gives one to pods. Each pod is a
    systemd slice with C(CPUWeight), C(CPUQuota), C(MemoryLow) and C(MemoryMax).
  - The module executes the plan that C(podslice plan) shows, and in check mode only shows it.
  - All problems of a definition are reported at once. If one pod of a definition is invalid, or is
    refused because it does not fit, nothing is changed.
version_added: "0.1.0"
author:
  - Contributors to podslice (!UNKNOWN)
extends_documentation_fragment:
  - podslice.host.podslice
  - podslice.host.podslice.changes
options:
  definition:
    description:
      - The manifests, as a mapping, a list of mappings or a text in YAML or JSON. Pods, lists, and
        the templates of Deployment, StatefulSet, DaemonSet, ReplicaSet, Job and CronJob are read.
      - For a file of the controller use the lookup P(ansible.builtin.file#lookup), for a template
        P(ansible.builtin.template#lookup).
    type: raw
  src:
    description:
      - A file with manifests on the host, or a directory of such files.
      - A directory other than O(directory) requires O(persist=false), because a task keeps one file.
    type: path
  name:
    description:
      - The pods to remove, as V(NAME) or V(NAMESPACE/NAME). Only for O(state=absent).
    type: list
    elements: str
  namespace:
    description:
      - The namespace of pods without one.
      - It becomes part of a manifest that is given as a mapping. A text that is kept must state it
        itself.
    type: str
  state:
    description:
      - V(present) applies the pods and, with O(persist), keeps their manifest in a file.
      - V(absent) removes the pods and the file.
    type: str
    choices: [present, absent]
    default: present
  prune:
    description:
      - Remove applied pods that are not in the definition. With O(persist), pods of other files in
        O(directory) are kept, too.
    type: bool
    default: false
  persist:
    description:
      - Keep the manifest in a file of O(directory), so that it is applied at boot
        (C(podslice-apply.service)) or kept applied (C(podslice-agent.service)), where these
        services are enabled. Without it, the pods exist until the host is shut down.
      - The file is written before the pods are applied, because an agent undoes what differs from its
        manifests. It is written completely or not at all, with mode 0644, or 0640 where other users
        may not read the directory.
    type: bool
    default: true
  directory:
    description:
      - The directory of manifests. V(/etc/podslice/manifests) by default, and with O(scope=user)
        C(~/.config/podslice/manifests).
    type: path
  file:
    description:
      - The name of the file in O(directory). C(.yaml) is added to a name without a suffix.
      - For a definition of one pod the default is the name of the pod, with its namespace and
        C(_) before it unless that is C(default). A definition of several pods requires it.
    type: str
  allow_stop:
    description:
      - Allow that processes are stopped, by O(state=absent), by O(prune), or by a running agent
        because O(file) no longer has their pod. Otherwise the module fails, names the processes,
        and changes nothing.
      - Pods without processes are removed in any case.
    type: bool
    default: false
  allow_refused:
    description:
      - Apply the other pods if some are refused because they do not fit, or were evicted. Otherwise
        the module fails and changes nothing, in check mode, too.
    type: bool
    default: false
  force:
    description:
      - Set memory limits even below what is in use, as C(podslice apply --force). The kernel may
        then kill processes.
    type: bool
    default: false
  grace_period:
    description:
      - With O(state=absent), the seconds after which processes are killed that still run. By default
        that is C(terminationGracePeriodSeconds) of each pod.
    type: int
  confirm_seconds:
    description:
      - Set new values of reserved slices (C(enforce-node-allocatable)) only on trial. systemd on the
        host restores the old ones after this time, unless they are confirmed.
      - The module confirms them in the same task, over a second, new connection. If no login
        succeeds in this time, the values are restored without any connection, and the task fails.
      - The values of pods are not affected, only those of the slices of the system and of container
        runtimes, which could lock out the login itself.
    type: int
notes:
  - Between the plan and its execution processes may start. O(allow_stop) refuses those that the plan
    has shown.
  - In check mode, O(state=absent) shows the slices of the pods that are removed, without the changes
    of the slices above them.
  - The difference contains the manifest, as with P(ansible.builtin.copy#module), and Ansible logs the
    options of a task, so also O(definition), to the journal of the host. Use C(no_log=true) for
    manifests with secrets, which prevents both.
seealso:
  - module: podslice.host.config
  - module: podslice.host.cgroup_parent
"""

EXAMPLES = r"""
- name: A web server with a request and a limit
  podslice.host.pods:
    definition:
      apiVersion: v1
      kind: Pod
      metadata:
        name: web
      spec:
        resources:
          requests: {cpu: 500m, memory: 256Mi}
          limits: {memory: 512Mi}
        containers:
          - name: main

- name: All manifests of a template, which replace the pods that are there
  podslice.host.pods:
    definition: "{{ lookup('ansible.builtin.template', 'pods.yaml.j2') }}"
    file: fleet
    prune: true
    allow_stop: true

- name: Apply what is in the manifest directory
  podslice.host.pods:
    src: /etc/podslice/manifests

- name: Try the new limits of system.slice for a minute, and confirm them from a new login
  podslice.host.pods:
    src: /etc/podslice/manifests
    confirm_seconds: 60

- name: Remove a pod and its manifest, also if it has processes
  podslice.host.pods:
    name: [web]
    state: absent
    allow_stop: true
"""

RETURN = r"""
plan:
  description: The steps that were taken, or would be, and what was left out. As in C(podslice plan).
  returned: always
  type: dict
  contains:
    steps:
      description: The steps in their order.
      type: list
      elements: dict
    skipped:
      description: Properties that are left out, with the reasons.
      type: list
      elements: dict
refused:
  description: The pods that were not admitted.
  returned: always
  type: list
  elements: dict
  sample: [{pod: default/web, reason: OutOfmemory, message: "requests 64 GiB of memory, 30 GiB is free"}]
stopped:
  description: The slices whose processes were stopped, or would be.
  returned: always
  type: list
  elements: dict
  sample: [{unit: kubepods-besteffort-pod12.slice, why: pod default/web is removed, tasks: 2,
            processes: ["nginx (812)"]}]
slices:
  description: The slice of each pod, by NAMESPACE/NAME.
  returned: always
  type: dict
  sample: {default/web: kubepods-burstable-pod12.slice}
file:
  description: The file that keeps the manifest, or was removed. Null if there is none.
  returned: always
  type: str
  sample: /etc/podslice/manifests/web.yaml
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
problems:
  description: What is wrong with the definition, with its places.
  returned: on failure because of an invalid definition
  type: list
  elements: dict
"""

from ..module_utils import pods
from ..module_utils.glue import run_module


def main() -> None:
    """Run the module."""
    run_module(
        pods.run,
        pods.ARGUMENTS,
        mutually_exclusive=pods.MUTUALLY_EXCLUSIVE,
        required_one_of=pods.REQUIRED_ONE_OF,
    )


if __name__ == "__main__":
    main()

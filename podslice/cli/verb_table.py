"""The verbs with their summaries."""

from __future__ import annotations

SUMMARIES = {
    "Inspect": {
        "new": "Write the manifest of a new pod, with a comment on each field.",
        "compose": "Write the pod and the override file of a compose project.",
        "import": "Write the manifest of existing units or containers.",
        "check": "Check the configuration and manifests, and report all problems.",
        "explain": "Show each pod's QoS class and values, and their reasons.",
        "render": "Show the desired units, or write them as unit files.",
        "simulate": "Show the CPU and memory of each pod when all are busy.",
        "plan": "Show what apply would change, and why.",
        "status": "Show the pods and all problems, or one pod in detail.",
        "tree": "Show the slices as a tree, with limits, usage and processes.",
        "top": "Show the usage of the node and its pods, live on a terminal.",
        "recommend": "Recommend requests and limits from recorded usage.",
        "events": "Show the events of the agent and of verbs, the latest last.",
        "logs": "Show the messages of a pod in the journal.",
    },
    "Change": {
        "apply": "Create and change slices as the manifests request.",
        "confirm": "Keep the values that `apply --confirm` has set.",
        "delete": "Stop pods and remove their slices.",
        "readmit": "Allow evicted pods to run again.",
    },
    "Processes": {
        "run": "Run a command as a container of an applied pod.",
        "adopt": "Put running processes, or services for good, into a pod.",
        "release": "Remove adopted services from their pods.",
        "cgroup-parent": "Print a pod's slice, or the options that use it.",
        "phase": "Show whether a pod is in its init phase, or set the phase.",
    },
    "Node": {
        "node": "Show the node's capacity, reservations and requests.",
        "audit": "Compare a kubelet's units with the values that its pods give.",
        "doctor": "Check whether this host meets the requirements.",
        "version": "Print the version, as JSON with those of systemd and Python.",
    },
    "Agent": {
        "agent": "Run the agent, which keeps pods as their manifests request.",
    },
}
"""The verbs under their headings in the help, with the first paragraph of their descriptions.

They are here so that the help of the program requires no import of the verbs.
"""
VERB_GROUPS = {heading: tuple(verbs) for heading, verbs in SUMMARIES.items()}
BELOW_NODE = {"init": "node_init", "recommend": "node_recommend", "reset": "node_init"}
"""The verbs below `node`, and their modules."""

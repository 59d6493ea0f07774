"""How much of everything is read. More than that is refused, quickly and in little memory.

The first group is counted over all files of one load: one command, or all manifest directories of
the agent. Each number is what 10,000 pods of 25 lines need, with room: 5 MB, 320,001 values, 15,000
containers. The other groups bound a single part. Source: measured with `python -m tests.bombs`.
"""

from __future__ import annotations

BYTES_MAX = 8 * 2**20
"""Bytes of text."""

DOCUMENTS_MAX = 20_000

VALUES_MAX = 350_000
"""Values in YAML and JSON, aliases counted as what they stand for."""

PODS_MAX = 10_000
"""Pods, replicas included. A Kubernetes node has 110 by default."""

CONTAINERS_MAX = 20_000
"""Containers and init containers, those of every replica counted."""

VOLUMES_MAX = 10_000
"""Volumes in memory, those of every replica counted; each is a mount."""

PROBLEMS_MAX = 5_000
"""Problems that are counted."""

FILES_MAX = 20_000
"""Manifests in one directory."""

DEPTH_MAX = 64
"""Nesting of YAML and JSON. Kubernetes' own types end at about 20."""

TEXT_BYTES_MAX = 2**20
"""Bytes of one value or key, or of what stands between two of them: comments, empty lines.

Source: Kubernetes, staging/src/k8s.io/api/core/v1/types.go, MaxSecretSize: a ConfigMap holds 1 MiB.
"""

DIRECTIVES_MAX = 1_000
"""Lines that begin with `%` between two values. PyYAML takes time by the square of their number."""

REPLICAS_MAX = 1_000
"""Pods of one workload on one node."""

LISTS_MAX = 8
"""Lists in lists (`kind: List`)."""

POD_CONTAINERS_MAX = 256
"""Containers, and also init containers, of one pod."""

POD_VOLUMES_MAX = 256
"""Volumes of one pod."""

RESOURCES_MAX = 64
"""Different resources in one list of requests or limits."""

POD_AMOUNTS_MAX = 4_096
"""Requests and limits of all containers of one pod: eight for each of 512."""

POD_PROBLEMS_MAX = 50
"""Problems shown of one document or pod."""

UNKNOWN_FIELDS_MAX = 1_000
"""Unknown fields of one object that are compared with the known ones: 10 ms."""

SHOWN_MAX = 64
"""Characters of foreign text in a message."""

TOML_BYTES_MAX = 2**16
"""Bytes of one configuration file."""

TOML_DOTS_MAX = 40
"""Dots in one line of a configuration file. Python's reader takes memory by their square where they
are a key's; every eviction signal with a fraction has 16."""

PIPE_WAIT_SEC = 1.0
"""How long a named pipe may be without a writer before it is refused."""

READ_WAIT_SEC = 60.0
"""How long the writer of a pipe, or of standard input, may take to write all of it."""

"""Limits of input. Input that exceeds one is rejected, quickly and in little memory.

The first group applies to all files of one load: one command, or all manifest directories of the
agent. Each number is the need of 10,000 pods of 25 lines, with a margin: 5 MB, 320,001 values,
15,000 containers. The other groups apply to single parts. Source: measured with
`python -m tests.bombs`.
"""

from __future__ import annotations

BYTES_MAX = 8 * 2**20
"""Bytes of text."""

DOCUMENTS_MAX = 20_000

VALUES_MAX = 350_000
"""Values in YAML and JSON; an alias counts as the values that it refers to."""

PODS_MAX = 10_000
"""Pods, replicas included. A Kubernetes node has 110 by default."""

CONTAINERS_MAX = 20_000
"""Containers and init containers, including those of every replica."""

VOLUMES_MAX = 10_000
"""Volumes in memory, including those of every replica; each is a mount."""

PROBLEMS_MAX = 5_000
"""Problems that are counted."""

FILES_MAX = 20_000
"""Manifests in one directory."""

DEPTH_MAX = 64
"""Nesting of YAML and JSON. Kubernetes' own types have about 20 levels."""

TEXT_BYTES_MAX = 2**20
"""Bytes of one value or key, or between two of them: comments, empty lines.

Source: Kubernetes, staging/src/k8s.io/api/core/v1/types.go, MaxSecretSize: a ConfigMap holds 1 MiB.
"""

OBJECT_BYTES_MAX = 3 * 2**20
"""Bytes of one value in the list of pods that a kubelet sends, which no author may make unreadable.

Source: Kubernetes, staging/src/k8s.io/apiserver/pkg/server/config.go, MaxRequestBodyBytes.
"""

DIRECTIVES_MAX = 1_000
"""Lines that begin with `%` between two values. PyYAML's time grows with the square of their number."""

REPLICAS_MAX = 1_000
"""Pods of one workload on one node."""

LISTS_MAX = 8
"""Lists in lists (`kind: List`)."""

POD_CONTAINERS_MAX = 256
"""Containers, and also init containers, of one pod."""

POD_VOLUMES_MAX = 256
"""Volumes of one pod."""

WORKLOAD_ENTRIES_MAX = 1_024
"""Variables, ports, mounts or arguments in one list of a container."""

RESOURCES_MAX = 64
"""Different resources in one list of requests or limits."""

POD_AMOUNTS_MAX = 4_096
"""Requests and limits of all containers of one pod: eight for each of 512."""

POD_PROBLEMS_MAX = 50
"""Problems shown of one document or pod."""

UNKNOWN_FIELDS_MAX = 1_000
"""Unknown fields of one object that are compared with the known ones: 10 ms."""

TOML_BYTES_MAX = 2**16
"""Bytes of one configuration file."""

TOML_DOTS_MAX = 40
"""Dots in one line of a configuration file. In keys the memory of Python's reader grows with the
square of their number; all eviction signals with fractions have 16."""

PIPE_WAIT_SEC = 1.0
"""Time to wait for the first writer of a named pipe."""

READ_WAIT_SEC = 60.0
"""Time to read a pipe or standard input to its end."""

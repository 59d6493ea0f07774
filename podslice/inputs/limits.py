"""How much of everything is read. Beyond it a file is refused, quickly and with bounded memory.

The measure: 10,000 pods of 25 lines are 4 MB, 300,000 values and 6 levels of nesting.
"""

from __future__ import annotations

BYTES_MAX = 16 * 2**20
"""Bytes of one file or of standard input: 40,000 pods of ordinary size."""

NODES_MAX = 750_000
"""Values in one file, aliases counted as what they stand for: what is read within a second."""

DEPTH_MAX = 64
"""Nesting of YAML. Kubernetes' own types end at about 20."""

DOCUMENTS_MAX = 20_000
"""Documents in one file."""

FILES_MAX = 20_000
"""Manifests in one directory."""

PODS_MAX = 20_000
"""Pods in all files together, replicas included. A Kubernetes node has 110."""

REPLICAS_MAX = 1_000
"""Pods of one workload on one node."""

LISTS_MAX = 8
"""Lists in lists (`kind: List`)."""

CONTAINERS_MAX = 256
"""Containers, and also init containers, of one pod."""

VOLUMES_MAX = 256
"""Volumes of one pod."""

RESOURCES_MAX = 64
"""Different resources in one list of requests or limits."""

PROBLEMS_MAX = 50
"""Problems told of one document or pod. Whoever has more begins with these."""

SHOWN_MAX = 64
"""Characters of foreign text in a message."""

TOML_BYTES_MAX = 2**16
"""Bytes of one configuration file."""

TOML_DOTS_MAX = 40
"""Dots in one line of a configuration file. Python's reader takes memory by their square where they
are a key's; every eviction signal with a fraction has 16."""

PIPE_WAIT_MSEC = 1_000
"""How long a named pipe may be without a writer before it is refused."""

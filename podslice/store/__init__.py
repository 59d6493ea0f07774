"""What has been applied, and what else has to outlive a process: files below /run, all atomic.

Systemd holds the slices; what it can't hold is the manifest, which the sums of the tiers need.
Everything ends with the boot, as transient units do.
"""

from podslice.store.records import Records
from podslice.store.store import Store

__all__ = ["Records", "Store"]

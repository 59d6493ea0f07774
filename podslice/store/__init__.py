"""Records of applied pods and other state that outlives a process: files below /run.

systemd keeps the slices, but not the manifests, which the sums of the tiers require. Like transient
units, everything is lost at the next boot.
"""

from podslice.store.records import Records
from podslice.store.store import Store

__all__ = ["Records", "Store"]

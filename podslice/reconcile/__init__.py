"""The meeting point: load, observe, desire, plan, act, report. Every verb is a path through here.

The dry run is the plan: `plan` and `apply` differ in what is done with it, never in how it is made.
"""

from podslice.reconcile.converge import apply, delete, settle
from podslice.reconcile.evict import stop_pod
from podslice.reconcile.look import look
from podslice.reconcile.world import Asked, Ends, State, World

__all__ = ["Asked", "Ends", "State", "World", "apply", "delete", "look", "settle", "stop_pod"]

# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The action of podslice.host.node."""

from __future__ import annotations

from ..plugin_utils.confirming import ConfirmingAction


class ActionModule(ConfirmingAction):
    """Runs the module, and confirms values of reserved slices over a second connection."""

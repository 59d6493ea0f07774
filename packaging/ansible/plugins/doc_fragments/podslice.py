# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Documentation that all modules share."""

from __future__ import annotations


class ModuleDocFragment:
    """The common options."""

    DOCUMENTATION = r"""
options:
  executable:
    description:
      - The command podslice on the host, as a name or a path.
      - A name is searched in E(PATH), then in C(/usr/local/bin) and C(/opt/podslice/bin).
    type: path
    default: podslice
  scope:
    description:
      - The service manager whose units are meant, V(system) for that of the host, and V(user) for
        that of the user of the connection (or of C(become_user)).
      - V(user) requires a user manager, so a session or lingering (C(loginctl enable-linger)). If
        E(XDG_RUNTIME_DIR) is not set, as in a connection without a login, the modules set it.
    type: str
    choices: [system, user]
    default: system
  cgroup_root:
    description:
      - The control group below which podslice creates its slices, as C(cgroup-root) in podslice.toml.
      - Without it, the configuration of the host applies.
    type: str
requirements:
  - podslice on the host, in the version of this collection or later
  - Python 3.9 or later on the host
"""
    CHANGES = r"""
attributes:
  check_mode:
    description: Can run in check mode and return the changes without making them.
    support: full
  diff_mode:
    description: Returns details on what has changed, or would change.
    support: full
  platform:
    description: The operating systems that the module supports.
    platforms: linux
    support: full
"""
    READS = r"""
attributes:
  check_mode:
    description: Can run in check mode, and changes nothing in any mode.
    support: full
  diff_mode:
    description: There are no changes, so there is no difference.
    support: none
  platform:
    description: The operating systems that the module supports.
    platforms: linux
    support: full
"""

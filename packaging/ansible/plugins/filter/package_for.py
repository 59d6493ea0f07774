# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The filter package_for."""

from __future__ import annotations

DOCUMENTATION = """
name: package_for
short_description: The package of podslice that fits a host
version_added: 0.1.0
author: Contributors to podslice
description:
  - Returns which of the packages that C(make debs) and C(make rpm) build fits a host, by its facts.
positional: version, lines
options:
  _input:
    description: Facts of M(ansible.builtin.setup).
    type: dict
    required: true
  version:
    description: The version of podslice.
    type: str
    required: true
  lines:
    description:
      - The installed packages C(python3) and C(podslice), each as C(NAME installed VERSION
        ARCHITECTURE). Without a line for C(python3), facts of the Python of the play decide.
    type: list
    elements: str
    default: []
"""

EXAMPLES = """
- name: Show the package that fits the host
  ansible.builtin.debug:
    msg: "{{ ansible_facts | podslice.host.package_for('0.1.0') }}"
"""

RETURN = """
_value:
  description:
    - C(kind) is V(debian13), V(debian12), V(generic) or V(rpm).
    - C(file) and C(version) are those of the package, C(is_installed) whether it is installed.
    - C(problem) is null, or states why no package fits; the others are null then.
  type: dict
"""

from typing import Any

from ..plugin_utils.packages import choose


class FilterModule:
    """The filter."""

    def filters(self) -> dict[str, Any]:
        """Return it by its name."""
        return {"package_for": choose}

# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""What connects the logic of a module with Ansible."""

from __future__ import annotations

import os
from typing import Any, Callable

from ansible.module_utils.basic import AnsibleModule

from .podslice import (
    COMMON_ARGUMENTS,
    Document,
    Ended,
    Failure,
    Podslice,
    environment_of,
    find_executable,
    run_logic,
)

Logic = Callable[..., Document]


def run_module(logic: Logic, arguments: Document, **rules: Any) -> None:  # noqa: ANN401
    """Run a module: its logic gets the parameters, podslice, and whether nothing may change."""
    module = AnsibleModule(
        argument_spec={**COMMON_ARGUMENTS, **arguments}, supports_check_mode=True, **rules
    )
    wanted = dict(module.params)
    environment = environment_of(wanted["scope"], dict(os.environ), os.getuid())

    def run(words: list[str], text: str | None) -> Ended:
        found = module.run_command(
            words,
            data=text,
            binary_data=True,
            environ_update=environment,
            # they are as the task states them
            expand_user_and_vars=False,
        )
        return Ended(*found)

    failure = None
    try:
        wanted["executable"] = find_executable(wanted["executable"])
        podslice = Podslice(run, wanted)
        result = run_logic(logic, wanted, podslice, check_mode=module.check_mode)
    except Failure as error:
        failure, result = error, dict(error.facts)
    for each in result.pop("warnings", ()):
        module.warn(each)
    # manifests may have secrets in the environment of containers
    if not module._diff:  # noqa: SLF001 - as the documentation of Ansible states it
        result.pop("diff", None)
    if failure is not None:
        module.fail_json(msg=failure.message, **result)
    module.exit_json(**result)

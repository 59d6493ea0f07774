"""The configuration of verbs that show or remove things, which also run with invalid files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from podslice.cli import host
from podslice.cli.options import Planning
from podslice.cli.output import note
from podslice.cli.views import documents
from podslice.cli.views.problem_lines import problem_line
from podslice.errors import HostError, InputError, Problem, Severity
from podslice.inputs.options.config_files import make_config, restore
from podslice.model.config import Config, Origin, Source
from podslice.store import Store

_SUBSTITUTES = {
    Source.LAST_VALID: "this command uses the last valid configuration",
    Source.DEFAULT: "no valid configuration is recorded; this command uses the default one",
}


def tolerate(planning: Planning, *, is_listed: bool = False) -> Planning:
    """Return the options with another configuration if the configuration files are invalid.

    Verbs that show or remove use the last valid configuration, or the default one if none is
    recorded. The problems are reported on standard error, unless the verb lists them itself.

    Raises:
        InputError: an option, or the file given with `--config`, is invalid.
    """
    try:
        _ = planning.config
    except InputError as error:
        if planning.config_file is not None:
            raise
        config, origin = _substitute(planning, error)
    else:
        return planning
    for found in () if is_listed else origin.problems:
        note(problem_line(found))
    message = f"the configuration files are invalid: {_SUBSTITUTES[origin.source]}"
    hint = "after correcting them, run: podslice check"
    note(problem_line(Problem(where="", message=message, hint=hint, severity=Severity.WARNING)))
    return replace(planning, substitute=(config, origin))


def _substitute(planning: Planning, error: InputError) -> tuple[Config, Origin]:
    """Return the last valid configuration or else the default one, with the options applied.

    Raises:
        InputError: `error`, because the options are invalid with both.
    """
    recorded: Mapping[str, object] | None = None

    with suppress(HostError):  # there is no session
        recorded = Store(host.runtime_directory(planning.manager)).options()
    for source, settings in ((Source.LAST_VALID, recorded), (Source.DEFAULT, {})):
        if settings is not None:
            with suppress(InputError):
                is_user = planning.manager.is_user
                config = make_config(restore(settings), planning.flags, is_user=is_user)
                return config, Origin(source=source, problems=error.problems)
    raise error


def document(origin: Origin) -> documents.Document:
    """Return the configuration in use instead of invalid files, and their problems."""
    if origin.source is Source.FILES:
        return {}
    problems = [documents.problem(found) for found in origin.problems]
    return {"configuration": {"source": origin.source.value, "problems": problems}}

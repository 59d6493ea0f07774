"""The configuration of verbs that show or remove things: they go on where its files are invalid."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from podslice.cli import session
from podslice.cli.options import Planning
from podslice.cli.output import note
from podslice.cli.views import documents
from podslice.cli.views.tables import problem
from podslice.errors import HostError, InputError, Problem, Severity
from podslice.inputs.options.config_files import make_config, restore
from podslice.model.config import Config, Origin, Source
from podslice.store import Store

_SUBSTITUTES = {
    Source.LAST_VALID: "this command uses the last valid configuration",
    Source.DEFAULT: "no valid configuration is recorded, and this command uses the default one",
}


def tolerate(planning: Planning) -> Planning:
    """Return the options with another configuration where the configuration files are invalid.

    For verbs that show or remove: the last valid configuration takes the place of the files, or
    the default one where none is recorded. The problems are reported on standard error.

    Raises:
        InputError: a flag is wrong, or a file that `--config` names.
    """
    try:
        _ = planning.config
    except InputError as error:
        if planning.config_file is not None:
            raise
        config, origin = _substitute(planning, error)
    else:
        return planning
    for found in origin.problems:
        note(problem(found))
    message = f"the configuration files are invalid: {_SUBSTITUTES[origin.source]}"
    hint = "to check them after a correction: podslice check"
    note(problem(Problem(where="", message=message, hint=hint, severity=Severity.WARNING)))
    return replace(planning, substitute=(config, origin))


def _substitute(planning: Planning, error: InputError) -> tuple[Config, Origin]:
    """Return the last valid configuration or else the default one, with the flags.

    Raises:
        InputError: `error`, because the flags are wrong with both.
    """
    recorded: Mapping[str, object] | None = None
    with suppress(HostError):  # there is no session
        recorded = Store(session.runtime_directory(planning.manager)).settings()
    for source, settings in ((Source.LAST_VALID, recorded), (Source.DEFAULT, {})):
        if settings is not None:
            with suppress(InputError):
                config = make_config(restore(settings), planning.flags)
                return config, Origin(source=source, problems=error.problems)
    raise error


def document(origin: Origin) -> documents.Document:
    """Return which configuration takes the place of invalid files, and what is wrong with these."""
    if origin.source is Source.FILES:
        return {}
    problems = [documents.problem(found) for found in origin.problems]
    return {"configuration": {"source": origin.source.value, "problems": problems}}

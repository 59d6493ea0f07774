#!/usr/bin/env python3
"""Write the files that are generated from the code: manual pages and shell completions.

    packaging/generate.py PREFIX        for example build, or debian/podslice/usr

PREFIX/share/man/man1/podslice.1 and so on. They are generated when a package is built and are not
in the repository, so that they match the code. Requires the dependencies of podslice, and
SOURCE_DATE_EPOCH for a reproducible date.

    packaging/generate.py --schemas docs/json

The schemas of JSON documents, which are in the repository.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from typer.completion import get_completion_script  # noqa: E402 - after the path

from docs import manual  # noqa: E402 - as above
from podslice.cli.report import schemas  # noqa: E402 - as above
from podslice.cli.verb_table import VERBS  # noqa: E402 - as above
from podslice.features import FEATURES  # noqa: E402 - as above

ZSH_DIRECTORY = "share/zsh/site-functions"
_ZSH_FIRST = '[[ ${zsh_eval_context[-1]} = loadautofunc ]] && _podslice_completion "$@"\n'


def files(zsh_directory: str = ZSH_DIRECTORY) -> dict[str, str]:
    """Return every generated file by its path below the prefix."""
    pages = manual.pages(HERE / "man")
    return {
        **{f"share/man/man{name[-1]}/{name}": text for name, text in pages.items()},
        "share/bash-completion/completions/podslice": _completion("bash"),
        f"{zsh_directory}/_podslice": _completion("zsh"),
        "share/fish/vendor_completions.d/podslice.fish": _completion("fish"),
    }


def schema_files() -> dict[str, str]:
    """Return the schema of each verb's JSON document by the name of its file."""
    return {
        f"{name}.json": json.dumps(made, indent=2) + "\n"
        for name, made in schemas(VERBS, FEATURES).items()
    }


def _completion(shell: str) -> str:
    """Return typer's script, which asks podslice for words at each press of the completion key.

    zsh loads it at the first press, and calls it as the function that completes.
    """
    made = get_completion_script(
        prog_name="podslice", complete_var="_PODSLICE_COMPLETE", shell=shell
    )
    return f"{made}\n{_ZSH_FIRST if shell == 'zsh' else ''}"


def main() -> int:
    """Write all files; return 1 if a template and the code disagree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("prefix", type=Path, metavar="PREFIX")
    parser.add_argument(
        "--schemas", action="store_true", help="write the schemas of JSON documents to PREFIX"
    )
    parser.add_argument(
        "--zsh-directory",
        default=ZSH_DIRECTORY,
        metavar="DIR",
        help="below PREFIX; Debian's is share/zsh/vendor-completions (default: %(default)s)",
    )
    arguments = parser.parse_args()
    try:
        made = schema_files() if arguments.schemas else files(arguments.zsh_directory)
    except manual.TemplateError as error:
        sys.stderr.write(f"packaging/generate.py: {error}\n")
        return 1
    for name, text in made.items():
        path = arguments.prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
    return 0


if __name__ == "__main__":
    sys.exit(main())

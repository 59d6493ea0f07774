#!/usr/bin/env python3
"""Write the files that are generated from the code: manual pages and shell completions.

    packaging/generate.py PREFIX        for example build, or debian/podslice/usr

PREFIX/share/man/man1/podslice.1 and so on. They are generated when a package is built and are not
in the repository, so that they match the code. Requires the dependencies of podslice, and
SOURCE_DATE_EPOCH for a reproducible date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from docs import manual, shells  # noqa: E402 - after the path
from podslice.cli.app import make_app  # noqa: E402 - as above
from podslice.cli.command_tree import read_app  # noqa: E402 - as above

ZSH_DIRECTORY = "share/zsh/site-functions"


def files(zsh_directory: str = ZSH_DIRECTORY) -> dict[str, str]:
    """Return every generated file by its path below the prefix."""
    root = read_app(make_app())
    pages = manual.pages(root, HERE / "man")
    return {
        **{f"share/man/man{name[-1]}/{name}": text for name, text in pages.items()},
        "share/bash-completion/completions/podslice": shells.bash(root),
        f"{zsh_directory}/_podslice": shells.zsh(root),
        "share/fish/vendor_completions.d/podslice.fish": shells.fish(root),
    }


def main() -> int:
    """Write all files; return 1 if a template and the code disagree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("prefix", type=Path, metavar="PREFIX")
    parser.add_argument(
        "--zsh-directory",
        default=ZSH_DIRECTORY,
        metavar="DIR",
        help="below PREFIX; Debian's is share/zsh/vendor-completions (default: %(default)s)",
    )
    arguments = parser.parse_args()
    try:
        made = files(arguments.zsh_directory)
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

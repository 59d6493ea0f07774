"""The configuration of files and flags, as the command line reads it."""

from collections.abc import Mapping
from pathlib import Path

from podslice.inputs.options.config_files import make_config, read_files
from podslice.model.config import Config


def load_config(
    flags: Mapping[str, object] | None = None,
    *,
    root: Path = Path("/"),
    file: Path | None = None,
) -> Config:
    """Read the files, and let flags override them; raise InputError for invalid ones."""
    return make_config(read_files(root=root, file=file), flags or {})

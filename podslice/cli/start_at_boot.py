"""Whether the services of pods start at boot: only once their slices are applied again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from podslice.cli import wanted
from podslice.cli.options import Planning
from podslice.cli.output import note
from podslice.model.config import Config
from podslice.model.manager import Manager

_STDIN = "-"
_AGENT, _APPLY = "podslice-agent.service", "podslice-apply.service"


def note_start_at_boot(planning: Planning, sources: Sequence[str]) -> None:
    """Print what the pods of these manifests need to start at boot, if something is missing."""
    own = wanted.manifest_directories(planning.config, planning.manager)
    if missing := list(_missing(planning.manager, sources, own or Config().manifests)):
        when = "with the user's service manager" if planning.manager.is_user else "at boot"
        note(f"the pods do not start {when}; to change that: {'; '.join(missing)}")


def note_limits_at_boot(planning: Planning, key: str) -> None:
    """Print what a pod needs so that its services start in its slice at boot, if it is missing."""
    manager, config = planning.manager, planning.config
    directories = wanted.manifest_directories(config, manager) or Config().manifests
    files = wanted.pods_of_manifests(planning)
    inside = {str(Path(path).parent) for path, pods in files.items() if key in pods}
    if not manager.is_user and Config().manifests[0] in inside:
        return  # a service with the drop-in starts what applies them
    if not inside:
        remedy = f"copy its manifest to {directories[0]}"
    elif is_enabled(_AGENT, manager) or manager.is_user:
        return
    else:
        remedy = f"systemctl enable {_AGENT}"
    when = "with the user's service manager" if manager.is_user else "at boot"
    note(f"pod {key} is not applied {when}, so that its services start without limits; {remedy}")


def _missing(manager: Manager, sources: Sequence[str], directories: Sequence[str]) -> Iterator[str]:
    outside = [each for each in sources if not _is_inside(each, directories)]
    if outside:
        listed = " ".join("standard input" if each == _STDIN else each for each in outside)
        yield f"copy {listed} to {directories[0]}"
    units = (_AGENT,) if manager.is_user else (_APPLY, _AGENT)
    if not any(is_enabled(each, manager) for each in units):
        yield f"systemctl{manager.flag} enable {units[0]}"


def _is_inside(source: str, directories: Sequence[str]) -> bool:
    path = Path(source).resolve()
    places = {Path(each).resolve() for each in directories}
    return source != _STDIN and not places.isdisjoint({path, *path.parents})


def is_enabled(unit: str, manager: Manager) -> bool:
    """Return whether a target that starts with the service manager wants the unit.

    That systemd has loaded a unit does not show this: others may refer to it.

    Source: systemd.unit(5), "Unit File Load Path" and "[Install] Section Options".
    """
    return any((each / unit).is_symlink() for each in _wanted(manager))


def _wanted(manager: Manager) -> Iterator[Path]:
    own = Path(manager.config_directory, "systemd")
    if not manager.is_user:
        yield own / "system/multi-user.target.wants"
        return
    for each in (own, Path("/etc/systemd")):
        yield each / "user/default.target.wants"

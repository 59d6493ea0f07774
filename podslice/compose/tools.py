"""The tools that start projects, and their command lines."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from podslice.dataclass import dataclass

OVERRIDE = "compose.podslice.yaml"
"""The name of the override file."""


class ComposeTool(StrEnum):
    """A tool that resolves and starts projects, in the order in which they are looked for."""

    DOCKER = "docker"
    DOCKER_COMPOSE = "docker-compose"
    PODMAN_COMPOSE = "podman-compose"

    @property
    def words(self) -> tuple[str, ...]:
        """Return the beginning of its command line."""
        return ("docker", "compose") if self is ComposeTool.DOCKER else (self.value,)

    @property
    def runtime(self) -> str:
        """Return the program that runs the containers."""
        return "podman" if self is ComposeTool.PODMAN_COMPOSE else "docker"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFiles:
    """The files of a project, and the options that choose what is part of it."""

    files: tuple[str, ...]
    profiles: tuple[str, ...] = ()
    env_files: tuple[str, ...] = ()
    project_name: str | None = None

    def arguments(self, *more_files: str) -> list[str]:
        """Return the options of every tool, with further files after the project's own."""
        arguments = [f"--env-file={path}" for path in self.env_files]
        if self.project_name is not None:
            arguments.append(f"--project-name={self.project_name}")
        for path in (*self.files, *more_files):
            arguments += ["-f", path]
        return [*arguments, *(f"--profile={name}" for name in self.profiles)]


def up_command(
    tool: ComposeTool, project: ProjectFiles, override: Sequence[str], slice_: str
) -> list[str]:
    """Return the command that starts a project in its pod.

    podman-compose ignores `cgroup_parent`, and passes options on to podman.

    Source: podman-compose 1.6.0, container_to_args and get_podman_args.
    """
    words = list(tool.words)
    if tool is ComposeTool.PODMAN_COMPOSE:
        words.append(f"--podman-run-args=--cgroup-parent={slice_}")
    return [*words, *project.arguments(*override), "up", "-d"]

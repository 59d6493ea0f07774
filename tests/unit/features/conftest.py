"""Features are tested on the simulated machine of the command line."""

from tests.unit.cli.conftest import (  # noqa: F401 - fixtures
    commands,
    files,
    here,
    journal,
    main,
    memory,
    messages,
    no_loop,
    no_systemd,
    podman_memory,
    podslice,
    quadlet_directory,
    runtimes_hold,
    web,
)

"""What the services that probe containers need from the host."""

import pytest

from podslice.features.quadlet.probes import program_problem
from podslice.features.quadlet.result import Options
from podslice.features.quadlet.workload import (
    ContainerWorkload,
    Exec,
    PodWorkload,
    Probe,
    ProbeKind,
    TcpSocket,
)
from podslice.model.pod import ContainerKind
from tests.cases.quadlets import USER

HOME = "/root/.local/bin/podslice"
REQUEST, COMMAND = TcpSocket(port=80), Exec(command=("check",))


def problem(action, **options):
    probes = {ProbeKind.STARTUP: Probe(action=action)}
    app = ContainerWorkload(name="app", kind=ContainerKind.APP, image="app", probes=probes)
    return program_problem("default/web", PodWorkload(containers=(app,)), Options(**options))


def test_a_service_in_a_sandbox_cannot_execute_a_program_in_a_home():
    assert str(problem(REQUEST, program=HOME)) == (
        "pod default/web: container app: the service that probes it cannot execute "
        f"{HOME}; install podslice where every user can execute it, as the packages do"
    )


@pytest.mark.parametrize(
    ("action", "options"),
    [(REQUEST, {}), (COMMAND, {"program": HOME}), (REQUEST, {"program": HOME, "manager": USER})],
)
def test_other_services_can_execute_it(action, options):
    assert problem(action, **options) is None

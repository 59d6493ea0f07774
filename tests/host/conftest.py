from collections.abc import Iterator

import pytest

from tests.host import podman
from tests.lab import fixtures
from tests.lab.machine import Machine
from tests.lab.qemu import Hardware
from tests.lab.remote import RemoteMachine
from tests.lab.vm import Vm

ONLY = {"cgroup2": "vm", "namespace": "namespace", "unified": "new_namespace"}
"""The only kind of machine for tests with a marker."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cgroup2: looks at cgroup v2, so only in the vm")
    config.addinivalue_line("markers", "namespace: nothing of the kernel matters, so only there")
    config.addinivalue_line("markers", "newest: also in a namespace with the newest systemd")
    config.addinivalue_line("markers", "unified: only there, where cgroup v2 has no controllers")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that use a machine in each kind; those of cgroup v2 in the vm only.

    A test is only in the namespace if it compares names, output, records, the journal or what
    systemd itself has: not values of control groups, nor events or pressure. systemd is the same in
    both, and the virtual machine is ten times slower. Where processes are in the hierarchy of cgroup
    v2 is the same in a namespace with the newest systemd, at the speed of this host.
    """
    fixture = "module_machine" if "module_machine" in metafunc.fixturenames else "machine"
    if fixture in metafunc.fixturenames:
        kinds = ["namespace", "vm"]
        for marker, only in ONLY.items():
            if metafunc.definition.get_closest_marker(marker) is not None:
                kinds = [only]
        if metafunc.definition.get_closest_marker("newest") is not None:
            kinds.append("new_namespace")
        metafunc.parametrize(fixture, kinds, indirect=True)


@pytest.fixture(scope="session")
def vm() -> Iterator[Vm]:
    """A restored virtual machine with the source tree at /src; tests must restore its state."""
    fixtures.need_lab()
    with Vm(has_source=True) as restored:
        yield restored


@pytest.fixture(scope="session")
def new_vm() -> Iterator[Vm]:
    """A virtual machine with the newest systemd in Debian and its kernel, 8 CPUs and 2 NUMA nodes.

    It has the CPUs 0-3 on node 0, and 4-7 on node 1; each core has two threads. Few tests use it, so
    that no template has the source tree in it.
    """
    fixtures.need_lab()
    with Vm("forky", hardware=Hardware(cpu_count=8, numa_count=2, threads_per_core=2)) as machine:
        machine.unpack_source()
        yield machine


@pytest.fixture(scope="session")
def new_namespace() -> Iterator[Machine]:
    """A namespace with that systemd; on a host with cgroup v1 it has no controllers."""
    with fixtures.boot_namespace("forky") as booted:
        yield booted


@pytest.fixture(scope="session")
def podman_vm() -> Iterator[Vm]:
    """A virtual machine with podman and an image; modules end with `podman.clean`."""
    fixtures.need_lab()
    with Vm(has_source=True) as restored:
        podman.set_up(restored)
        yield restored


@pytest.fixture(scope="session")
def podman_namespace() -> Iterator[RemoteMachine]:
    """The same in a namespace with cgroup v2, thirty times as fast.

    On a host with cgroup v1 it has no controllers: there, tests look at the values that systemd has.
    """
    with fixtures.boot_remote_namespace(is_unified=True) as booted:
        podman.set_up(booted)
        yield booted


@pytest.fixture
def clean_podman_vm(podman_vm: Vm) -> Iterator[Vm]:
    """The virtual machine with podman, cleaned of pods, containers and volumes after the test."""
    yield podman_vm
    podman.clean(podman_vm)


@pytest.fixture
def clean_podman_namespace(podman_namespace: RemoteMachine) -> Iterator[RemoteMachine]:
    """The namespace with podman, cleaned of pods, containers and volumes after the test."""
    yield podman_namespace
    podman.clean(podman_namespace)


@pytest.fixture(scope="session")
def namespace() -> Iterator[Machine]:
    """A booted namespace with the source tree at /src; tests must restore its state."""
    with fixtures.boot_namespace() as booted:
        yield booted


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Machine:
    """A namespace and a virtual machine in turn; only the latter for tests marked cgroup2."""
    booted: Machine = request.getfixturevalue(request.param)
    return booted


@pytest.fixture(scope="module")
def module_machine(request: pytest.FixtureRequest) -> Machine:
    """The same for a module, all of whose tests share what a fixture of the module has started."""
    booted: Machine = request.getfixturevalue(request.param)
    return booted


@pytest.fixture
def clean_machine(machine: Machine) -> Iterator[Machine]:
    """The same, cleaned of podslice's state after the test."""
    yield from fixtures.keep_clean(machine)


@pytest.fixture
def clean_vm(vm: Vm) -> Iterator[Machine]:
    """The virtual machine, cleaned of podslice's state after the test."""
    yield from fixtures.keep_clean(vm)


@pytest.fixture
def clean_namespace(namespace: Machine) -> Iterator[Machine]:
    """The namespace, cleaned of podslice's state after the test."""
    yield from fixtures.keep_clean(namespace)

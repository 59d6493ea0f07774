"""The network of a namespace: what restarts with a Service, when it is removed, and the agent."""

import json
import os

import pytest

from podslice.features.quadlet import services as quadlet_services
from podslice.features.quadlet import verbs as quadlets
from podslice.features.quadlet.transition import steps_to_remove_networks
from podslice.kernel.programs import NoAnswerError
from tests.unit.cli.podman import APP, LOG, POD, WEB, active
from tests.unit.features.quadlet.test_containers import machine  # noqa: F401 (a fixture)

SERVICE = """---
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec: {selector: {app: web}, ports: [{port: 80}]}
"""
SERVED = WEB.replace("uid: u1}", "uid: u1, labels: {app: web}}")
OTHER = WEB.replace("name: web, uid: u1", "name: other, uid: u2")
NETWORK = "web_network.network"
SERVICE_OF_NETWORK = "web_network-network.service"


def service(name):
    return SERVICE.replace("NAME", name)


def network_of(name):
    return {f"{name}.network": f"[Network]\nNetworkName={name}\n".encode(), "x.volume": b""}


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        ({"a": network_of("n")}, {}, [("n", "a")]),
        ({"a": network_of("n"), "b": network_of("n")}, {"b": network_of("n")}, []),
        ({"a": network_of("n")}, {"a": {}}, [("n", "a")]),
        ({"a": network_of("n")}, {"c": network_of("n")}, []),
        ({"a": network_of("n"), "b": network_of("m")}, {}, [("m", "b"), ("n", "a")]),
        ({"a": {}}, {"a": network_of("n")}, []),
    ],
)
def test_a_network_is_removed_with_its_last_pod(before, after, gone):
    steps = list(steps_to_remove_networks(before, after))
    assert [(each.name, each.pod) for each in steps] == gone
    assert {str(each.action) for each in steps} <= {"remove-network"}


@pytest.fixture
def start(podslice, podman_memory, files):
    def start(text, verb="apply", *options):
        files({"web.yaml": text})
        return podslice(verb, "-f", "web.yaml", "--start", *options)

    return start


def steps_of(result):
    """The actions of the steps, with the names of units and files."""
    steps = json.loads(result.out)["quadlets"]
    return [(each["action"], each["name"].rpartition("/")[2]) for each in steps]


def test_only_the_pods_of_a_changed_service_restart(start, podman_memory):
    both = f"{SERVED}---\n{OTHER}"
    start(both + service("web"))
    changed = steps_of(start(both + service("web") + service("also"), "plan", "-o", "json"))
    assert {name for action, name in changed if action == "stop"} == {POD, APP, LOG}
    assert [name for action, name in changed if action == "write"] == ["web.pod"]
    # without any Service all pods leave the network, which is removed
    left = steps_of(start(both, "plan", "-o", "json"))
    assert ("stop", "other-pod.service") in left
    assert ("remove", "other_network.network") in left
    assert [name for action, name in left if action == "remove-network"] == ["podslice-default"]
    assert start(both + service("web"), "plan").out == "nothing to do\n"


def test_a_missing_network_restarts_nothing(start, quadlet_directory):
    """The service of the pod requires that of the network, which systemd starts with it."""
    start(SERVED + service("web"))
    (quadlet_directory / NETWORK).unlink()
    steps = steps_of(start(SERVED + service("web"), "plan", "-o", "json"))
    assert steps == [("write", NETWORK)]


def test_delete_removes_the_network_with_the_last_pod(
    start, podslice, podman_memory, quadlet_directory, commands
):
    removal = ("/usr/bin/podman", "network", "rm", "podslice-default")
    start(f"{SERVED}---\n{OTHER}{service('web')}")
    assert podslice("delete", "other").code == 0
    assert removal not in commands
    ended = podslice("delete", "web")
    assert ended.code == 0
    assert "removed network podslice-default (default/web)" in ended.out
    assert removal in commands
    assert (active(podman_memory), list(quadlet_directory.iterdir())) == ([], [])


def test_the_last_pod_leaves_its_network_while_another_is_removed(start, podslice, files, commands):
    start(f"{SERVED}---\n{OTHER}{service('web')}")
    files({"web.yaml": SERVED})
    planned = podslice("plan", "-f", "web.yaml", "--start", "--prune", "-o", "json")
    removed = [each for each in steps_of(planned) if each[0] == "remove-network"]
    assert removed == [("remove-network", "podslice-default")]
    assert podslice("apply", "-f", "web.yaml", "--start", "--prune").code == 0
    assert commands.count(("/usr/bin/podman", "network", "rm", "podslice-default")) == 1


def test_a_network_that_others_use_is_reported(start, podslice, monkeypatch):
    async def fail(*argv):
        if argv[1] == "network":
            raise NoAnswerError("network is being used")

    start(SERVED + service("web"))
    monkeypatch.setattr(quadlet_services, "run_patiently", fail)
    ended = podslice("delete", "web")
    assert ended.code == 1
    assert (
        "failed to remove network podslice-default (default/web): podman: network is being used; to"
        " remove it: podman network rm podslice-default" in ended.out
    )


@pytest.mark.parametrize("text", [SERVED, SERVED + service("web")])
def test_a_missing_dns_server_is_named_where_pods_need_it(start, monkeypatch, tmp_path, text):
    monkeypatch.setattr(quadlets, "_HELPERS", (str(tmp_path),))
    monkeypatch.setattr(quadlets.shutil, "which", lambda _: None)
    message = "names of Services do not resolve without aardvark-dns; install aardvark-dns"
    assert (message in start(text, "plan").err) == ("Service" in text)
    (tmp_path / "aardvark-dns").touch()
    assert message not in start(text, "plan").err


def aliases(machine):  # noqa: F811
    text = (machine.directory / "web.pod").read_text()
    return [each for each in text.splitlines() if each.startswith("NetworkAlias=")][::4]


def test_the_agent_reads_the_services_of_all_files(machine):  # noqa: F811
    machine.put("web", SERVED)
    machine.put("service", service("a").removeprefix("---\n"))
    assert machine.run()[0] == 0
    assert aliases(machine) == ["NetworkAlias=a"]
    assert machine.run() == (0, [], "")
    # users other than root may not publish ports, or names
    path = str(machine.manifests / "foreign.yaml")
    machine.put("foreign", service("b").removeprefix("---\n"))
    machine.owners[path] = 1000
    assert machine.run() == (0, [], "")
    machine.owners.clear()
    assert machine.run()[0] == 0
    assert aliases(machine) == ["NetworkAlias=b", "NetworkAlias=a"]
    (machine.manifests / "foreign.yaml").unlink()
    (machine.manifests / "service.yaml").unlink()
    assert machine.run()[0] == 0
    assert aliases(machine) == []


@pytest.mark.parametrize("text", ["a: [", "kind: Service", service("A B").removeprefix("---\n")])
def test_pods_keep_their_names_while_a_file_with_services_has_an_error(machine, text):  # noqa: F811
    machine.put("web", SERVED)
    machine.put("service", service("a").removeprefix("---\n"))
    machine.run()
    machine.put("service", text)
    assert machine.run() == (0, [], "")
    assert aliases(machine) == ["NetworkAlias=a"]


def test_an_error_of_a_service_is_one_of_its_file(machine):  # noqa: F811
    machine.put("web", SERVED + service("a").replace("port: 80", "port: 0"))
    code, lines, err = machine.run()
    assert (code, lines) == (0, [])
    assert "web.yaml[1]: spec.ports[0].port: its containers are not updated: 0 is not a port" in err
    assert not os.path.lexists(machine.directory)


def test_an_error_of_a_service_is_none_of_a_file_whose_name_begins_its_name(machine):  # noqa: F811
    machine.put("web", WEB)
    machine.put("web.yaml", service("a").replace("port: 80", "port: 0"))
    machine.run()
    assert (machine.directory / "web.pod").exists()

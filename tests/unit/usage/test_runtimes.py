"""The containers of podman and docker that belong to pods, by the output of their tools."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from podslice.kernel.programs import NoAnswerError
from podslice.model.unit import SYSTEM, user_manager
from podslice.usage import runtimes
from podslice.usage.runtimes import (
    RuntimeContainer,
    containers,
    docker_messages,
    parse_docker,
    parse_podman,
)
from tests.cases.tables import cases
from tests.unit.builders import container, make_files, pod

# as podman 5.4.2 of Debian 13 printed it
PODMAN = json.loads((Path(__file__).parent / "podman.json").read_text())

# the fields of Docker's API that are read; its reference: ContainerInspectResponse
DOCKER = [
    {
        "Id": "3949fff2e8dd",
        "Name": "/shop-web-1",
        "State": {"Status": "running", "Running": True, "Pid": 700},
        "Config": {
            "Image": "nginx",
            "Labels": {"io.podslice.pod": "shop/web", "io.podslice.container": "main"},
        },
    },
    {
        "Id": "ba033ac44011",
        "Name": "/else",
        "State": {"Status": "running", "Running": True, "Pid": 701},
        "Config": {"Image": "ubuntu", "Labels": None},
    },
]


WEB = pod("web")
"""The pod of the labels."""
LABELLED = next(each for each in PODMAN["ps"] if "io.podslice.pod" in (each["Labels"] or {}))


def group_of(pid):
    return f"/group-of-{pid}"


def podman(*pods, listed=PODMAN["ps"], podman_pods=PODMAN["pods"]):
    found = parse_podman(listed, podman_pods, (WEB, *pods), group_of)
    return [(each.name, each.pod_key, each.pod_uid, each.container) for each in found]


def docker_with(**labels):
    entry = {**DOCKER[0], "Config": {"Labels": labels}}
    return [
        (each.pod_key, each.pod_uid, each.container) for each in parse_docker([entry], group_of)
    ]


def test_podmans_containers_are_known_by_their_labels_and_by_those_of_their_podman_pod():
    assert podman() == [
        ("one", "default/web", None, "main"),
        ("team-a", "default/web", None, "side"),
        ("forgotten", "default/web", None, None),
    ]


def test_a_container_has_its_id_and_the_control_group_of_its_process():
    (first, *_) = parse_podman(PODMAN["ps"], PODMAN["pods"], (), group_of)
    assert (first.runtime, first.id, first.pid) == (
        "podman",
        PODMAN["ps"][0]["Id"],
        PODMAN["ps"][0]["Pid"],
    )
    assert first.control_group == group_of(first.pid)


def test_containers_of_kube_play_are_recognized_by_their_names():
    assert podman(pod("played", namespace="shop"))[-1] == (
        "played-main",
        "shop/played",
        None,
        "main",
    )


@pytest.mark.parametrize(
    "pods",
    [
        [pod("played", namespace="a"), pod("played", namespace="b", uid="other")],
        [pod("played", containers=(container("web"),))],
        [pod("played-main")],
        [pod("play", containers=(container("ed-main"),))],
    ],
    ids=["two pods of that name", "no such container", "another pod", "another cut of the name"],
)
def test_a_name_that_may_be_a_coincidence_claims_nothing(pods):
    assert [name for name, *_ in podman(*pods)] == ["one", "team-a", "forgotten"]


def test_a_container_outside_of_any_podman_pod_is_not_known_by_its_name():
    alone = {**PODMAN["ps"][-1], "Pod": ""}
    assert podman(pod("played"), listed=[alone]) == []


def test_podmans_infra_container_is_reported_where_its_pod_is_not_applied():
    infra = PODMAN["ps"][2]
    assert infra["IsInfra"]
    assert infra["Labels"]["io.podslice.pod"] == "default/web"
    assert podman(listed=[infra]) == []
    (found,) = parse_podman([infra], PODMAN["pods"], (pod("db"),), group_of)
    assert (found.podman_pod, found.pod_key, found.container) == ("team", "default/web", None)


def test_containers_that_have_exited_have_no_control_group():
    ended = {**DOCKER[0], "State": {"Pid": 0}}
    assert [each.control_group for each in parse_docker([ended], group_of)] == [""]
    (ended, *_) = ({**each, "Pid": 0} for each in PODMAN["ps"])
    assert [each.control_group for each in parse_podman([ended], (), (), group_of)] == [""]


@cases
def test_how_dockers_containers_have_exited(state, exit_code, is_oom):
    (found,) = parse_docker([{**DOCKER[0], "State": state}], group_of)
    assert (found.exit_code, found.is_oom) == (exit_code, is_oom)


def test_podmans_containers_have_images_ports_and_restarts():
    ports = [
        {"host_ip": "", "container_port": 80, "host_port": 8080, "range": 1, "protocol": "tcp"},
        {"host_ip": "::1", "container_port": 90, "host_port": 9090, "range": 3, "protocol": "udp"},
    ]
    stated = {"Image": "docker.io/library/nginx:1", "Ports": ports, "Restarts": 4}
    first, second, *_ = parse_podman(
        [{**PODMAN["ps"][0], **stated}, PODMAN["ps"][0]], PODMAN["pods"], (), group_of
    )
    assert (first.image, first.restarts) == ("docker.io/library/nginx:1", 4)
    assert [*map(str, first.ports)] == ["0.0.0.0:8080->80/tcp", "[::1]:9090-9092->90-92/udp"]
    assert (second.image, second.ports, second.restarts) == ("", (), 0)


def test_dockers_containers_have_images_ports_and_restarts():
    ports = {
        "80/tcp": [
            {"HostIp": "192.0.2.1", "HostPort": "8080"},
            {"HostIp": "::", "HostPort": "8080"},
        ],
        "81/tcp": [{"HostIp": "", "HostPort": ""}],
        "443/tcp": None,
    }
    entry = {**DOCKER[0], "RestartCount": 2, "NetworkSettings": {"Ports": ports}}
    first, second = parse_docker([entry, DOCKER[0]], group_of)
    assert (first.image, first.restarts) == ("nginx", 2)
    assert [*map(str, first.ports)] == ["192.0.2.1:8080->80/tcp", "[::]:8080->80/tcp"]
    assert (second.image, second.ports, second.restarts) == ("nginx", (), 0)


async def test_how_podmans_containers_have_exited(host):
    """podman lists the exit code, and reports an OOM kill only where it inspects a container."""
    start(host, 7, "conmon")
    first = PODMAN["ps"][0]
    codes = {"done": 0, "crashed": 3, "stopped": 137, "oom": 137}
    listed = [
        {**first, "Id": name, "Names": [name], "Pid": 0, "Exited": True, "ExitCode": code}
        for name, code in codes.items()
    ]
    inspected = [{"Id": name, "State": {"OOMKilled": name == "oom"}} for name in ("stopped", "oom")]
    answers = {
        "podman ps": json.dumps([*listed, first]),
        "podman inspect --type=container stopped oom": json.dumps(inspected),
    }
    found, notes, _ = await list_containers(host, answers, with_exited=True)
    assert notes == []
    assert [(each.name, each.exit_code, each.is_oom) for each in found] == [
        *((name, code, name == "oom") for name, code in codes.items()),
        (first["Names"][0], None, False),
    ]


def test_dockers_containers_are_known_by_their_labels():
    (found,) = parse_docker(DOCKER, group_of)
    assert (found.runtime, found.name, found.pid) == ("docker", "shop-web-1", 700)
    assert (found.pod_key, found.container) == ("shop/web", "main")
    assert found.control_group == "/group-of-700"


@cases
def test_labels_name_the_pod_of_a_container(labels, key, uid, container):
    assert docker_with(**labels) == [(key, uid, container)]


@cases
def test_other_labels_claim_nothing(labels):
    assert docker_with(**labels) == []


def test_names_can_not_act_on_a_terminal():
    labels = {"io.podslice.pod": "shop/web", "io.podslice.container": "\x1b[2J"}
    entry = {**DOCKER[0], "Name": "/\x1b[31m", "Config": {"Labels": labels}}
    (found,) = parse_docker([entry], group_of)
    assert (found.name, found.container) == ("\\x1b[31m", "\\x1b[2J")


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host with both tools and invented processes of this user."""
    monkeypatch.setattr(runtimes.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(runtimes.os, "geteuid", lambda: tmp_path.stat().st_uid)
    (tmp_path / "proc").mkdir()
    return tmp_path


def start(host, pid, name):
    status = f"Tgid:\t{pid}\nUid:\t0\t0\t0\t0\n"
    files = {
        "comm": f"{name}\n",
        "stat": f"{pid} ({name}) S 1 {pid} {pid} 0 -1 4194560" + " 0" * 43,
        "status": status,
        "cgroup": f"0::/machine.slice/{name}.scope\n",
    }
    make_files(host / f"proc/{pid}", files)


class Tools:
    """Stands in for podman and docker; answers by the words of the command."""

    def __init__(self, answers):
        self.answers = answers
        self.commands = []

    async def __call__(self, *argv):
        self.commands.append(" ".join(argv))
        for words, answer in self.answers.items():
            if words in self.commands[-1]:
                if isinstance(answer, Exception):
                    raise answer
                return answer
        raise AssertionError(self.commands[-1])


BOTH = {
    "pod ps": json.dumps(PODMAN["pods"]),
    "podman ps": json.dumps(PODMAN["ps"]),
    "ps --quiet": "3949fff2e8dd\nba033ac44011\n",
    "inspect 3949fff2e8dd ba033ac44011": json.dumps(DOCKER),
}


def both_run(host):
    start(host, 7, "conmon")
    start(host, 8, "dockerd")
    start(host, 700, "nginx")
    for entry in PODMAN["ps"]:
        start(host, entry["Pid"], "sleep")
    make_files(host, {"run/docker.sock": ""})


def manager_of(host):
    """Return the manager of the present user."""
    uid = host.stat().st_uid
    return user_manager(uid, {"XDG_RUNTIME_DIR": "/run"}) if uid else SYSTEM


async def list_containers(host, answers, *, pods=(WEB,), manager=None, with_exited=False):
    notes = []
    tools = Tools(answers)
    manager = manager or manager_of(host)
    found = await containers(
        pods,
        manager=manager,
        on_note=notes.append,
        with_exited=with_exited,
        run_command=tools,
        root=host,
    )
    return found, notes, tools.commands


async def test_both_runtimes_are_asked(host):
    both_run(host)
    found, notes, commands = await list_containers(host, BOTH)
    assert [(each.runtime, each.name) for each in found] == [
        ("podman", "one"),
        ("podman", "team-a"),
        ("podman", "forgotten"),
        ("docker", "shop-web-1"),
    ]
    assert found[0].control_group == "/machine.slice/sleep.scope"
    assert notes == []
    assert f"docker --host=unix://{host}/run/docker.sock ps --quiet --no-trunc" in commands


async def test_no_query_is_made_without_a_running_runtime(host):
    assert await list_containers(host, {}) == ((), [], [])


async def test_containers_that_have_exited_are_listed_on_request(host):
    both_run(host)
    for entry in (*PODMAN["ps"], *DOCKER):
        pid = entry["Pid"] if "Pid" in entry else entry["State"]["Pid"]
        (host / f"proc/{pid}/cgroup").unlink(missing_ok=True)
    assert (await list_containers(host, BOTH))[0] == ()
    found, _, commands = await list_containers(host, BOTH, with_exited=True)
    assert [each.name for each in found] == ["one", "team-a", "forgotten", "shop-web-1"]
    assert [each for each in commands if " ps " in each and "--all" not in each] == [
        "podman pod ps --format=json"
    ]


@pytest.mark.parametrize("uid", [0, 1000])
async def test_containers_that_have_exited_are_listed_without_a_running_one(host, monkeypatch, uid):
    monkeypatch.setattr(runtimes.os, "geteuid", lambda: uid)
    monkeypatch.setenv("HOME", "/home/one")
    home = "home/one/.local/share" if uid else "var/lib"
    manager = user_manager(uid, {"XDG_RUNTIME_DIR": "/run"}) if uid else SYSTEM
    listing = {"manager": manager, "with_exited": True}
    assert await list_containers(host, {}, **listing) == ((), [], [])
    (host / home / "containers/storage").mkdir(parents=True)
    _, _, commands = await list_containers(host, {"podman ps": "[]"}, **listing)
    assert commands == ["podman ps --format=json --all"]
    # without a pod there is none to which one could belong
    assert await list_containers(host, {}, pods=(), **listing) == ((), [], [])


async def test_the_podman_pod_of_a_removed_pod_is_found_without_pods(host):
    both_run(host)
    found, _, _ = await list_containers(host, BOTH, pods=(), with_exited=True)
    assert [each.podman_pod for each in found if each.podman_pod] == ["team"]


async def test_podman_pods_are_queried_only_for_containers_in_one(host):
    start(host, 7, "conmon")
    _, notes, commands = await list_containers(host, {"podman ps": json.dumps(PODMAN["ps"][:2])})
    assert len(commands) == 1
    assert notes == []


async def test_docker_without_containers_is_not_asked_to_inspect_them(host):
    start(host, 8, "dockerd")
    make_files(host, {"run/docker.sock": ""})
    assert (await list_containers(host, {"ps --quiet": "\n"}))[:2] == ((), [])


async def test_a_daemon_without_its_socket_is_not_asked(host):
    start(host, 8, "dockerd")
    assert await list_containers(host, {}) == ((), [], [])


async def test_runtimes_of_another_user_are_not_asked(host):
    both_run(host)
    assert await list_containers(
        host, BOTH, manager=SYSTEM if host.stat().st_uid else user_manager(1000, {})
    ) == ((), [], [])


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (NoAnswerError("no answer in 5 s"), "podman: no answer in 5 s; its containers are unknown"),
        ("not JSON", "podman: its output has an unknown format; its"),
        ('[{"Names": []}]', "podman: its output has an unknown format; its"),
        ("null", "podman: its output has an unknown format; its"),
        ("[" * 100_000, "podman: its output has an unknown format; its"),
        *(
            (json.dumps([{**LABELLED, **changes}]), "podman: its output has an unknown format; its")
            for changes in (
                {"Pid": float("inf")},
                {"Pid": "../../etc"},
                {"Id": ["a"]},
                {"Names": []},
                {"Names": [5]},
                {"Labels": [1]},
            )
        ),
    ],
)
async def test_a_runtime_without_an_answer_is_reported_and_the_other_is_used(host, answer, note):
    both_run(host)
    found, notes, _ = await list_containers(host, {**BOTH, "podman ps": answer})
    assert [each.runtime for each in found] == ["docker"]
    (said,) = notes
    assert said.startswith(note)


async def test_a_tool_is_run_and_its_answer_taken(allow_effects):
    assert await runtimes.run("printf", "%s", "[1]") == "[1]"


@cases
async def test_a_tool_that_fails_reports_why(allow_effects, argv, reason):
    with pytest.raises(NoAnswerError) as caught:
        await runtimes.run(*argv)
    assert str(caught.value) == reason


async def test_a_command_that_needs_the_answer_waits_longer(allow_effects, monkeypatch):
    monkeypatch.setattr(runtimes, "PATIENT_LIMIT_SEC", 0.01)
    with pytest.raises(NoAnswerError, match="no answer in 0 s"):
        await runtimes.run_patiently("sleep", "1000")
    monkeypatch.undo()
    assert await runtimes.run_patiently("printf", "%s", "[1]") == "[1]"
    assert runtimes.PATIENT_LIMIT_SEC > 10 * runtimes.LIMIT_SEC


async def test_a_tool_that_hangs_is_ended(allow_effects, tmp_path):
    pid_file = tmp_path / "pid"
    hang = f"echo $$ > {pid_file}; exec sleep 1000"
    with pytest.raises(NoAnswerError, match="no answer in 1 s"):
        await runtimes.run("sh", "-c", hang, limit_sec=1.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


async def test_a_tool_is_killed_with_the_wait_for_it(allow_effects, tmp_path):
    started = tmp_path / "pid"
    os.mkfifo(started)
    script = f"echo $$ > {started}; exec sleep 1000"
    waiting = asyncio.create_task(runtimes.run("sh", "-c", script, limit_sec=1000))
    pid = int(await asyncio.to_thread(started.read_text))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_both_are_asked_at_the_same_time(host):
    both_run(host)
    docker_asked = asyncio.Event()

    class Waiting(Tools):
        async def __call__(self, *argv):
            if argv[0] == "docker":
                docker_asked.set()
            elif argv[:2] == ("podman", "ps"):
                await docker_asked.wait()
            return await super().__call__(*argv)

    tools = Waiting(BOTH)
    found = await containers(
        (WEB,), manager=manager_of(host), on_note=lambda _: None, run_command=tools, root=host
    )
    assert len(found) == 4


CONTAINER = RuntimeContainer(
    runtime="docker",
    id="72fed4c8",
    name="web-app",
    pid=0,
    pod_key="default/web",
    pod_uid=None,
    container="app",
    control_group="",
)


@cases
def test_how_a_container_of_a_runtime_ended(code, is_oom, result):
    last = CONTAINER._replace(exit_code=code, is_oom=is_oom).last_exit
    assert (last and last.result) == result
    assert last is None or (last.exit_code, last.is_failure) == (code, result != "success")


async def test_the_last_messages_of_docker_are_in_the_order_of_their_times():
    asked = []

    async def communicate(*argv, limit_sec):
        asked.append(argv)
        out = "2026-11-26T15:19:36.123456789Z one\n2026-11-26T15:19:36.300000000Z three\n"
        return 0, out, "2026-11-26T15:19:36.200000000Z two \x1b[31m\n"

    found = await docker_messages(CONTAINER, 5, SYSTEM, communicate)
    assert [(each.time_usec % 1_000_000, each.message) for each in found] == [
        (123456, "one"),
        (200000, "two \x1b[31m"),
        (300000, "three"),
    ]
    command = "docker --host=unix:///run/docker.sock logs --tail=5 --timestamps 72fed4c8"
    assert asked == [tuple(command.split())]
    assert len(await docker_messages(CONTAINER, 2, SYSTEM, communicate)) == 2


@cases
async def test_messages_that_docker_does_not_have_are_an_error(answer, reason):
    async def communicate(*_, **__):
        return answer

    with pytest.raises(NoAnswerError, match=reason):
        await docker_messages(CONTAINER, 5, SYSTEM, communicate)

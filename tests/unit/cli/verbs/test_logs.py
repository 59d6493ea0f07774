"""`logs`: the query to the journal. journalctl is executed in place of podslice."""

import pytest

from podslice.kernel import programs
from podslice.model.unit import SYSTEM, user_manager
from podslice.systemd import journal
from podslice.systemd.journal import LogQuery
from podslice.usage import runtimes
from tests.unit.builders import USER, make_files

SHOP = """\
apiVersion: v1
kind: Pod
metadata: {name: shop, uid: u-1}
spec:
  containers: [{name: app}, {name: log}]
"""
APP = ("podslice-podu_1-app.scope", "podslice-podu_1-app.service")


class Became(BaseException):
    """The process is journalctl now."""


@pytest.fixture
def shop(memory, podslice, files, monkeypatch, tmp_path, allow_effects):
    """The pod is applied; return the arguments of journalctl for arguments of `logs`."""
    (tmp_path / "journal/0123").mkdir(parents=True)
    (tmp_path / "journal/0123/system.journal").touch()
    monkeypatch.setattr(journal, "JOURNAL_DIRECTORIES", (tmp_path / "journal",))
    monkeypatch.setattr(journal.shutil, "which", lambda _: "/bin/true")
    executed = []

    def become(command):
        executed.append(command)
        raise Became

    monkeypatch.setattr(programs, "become", become)
    files({"shop.yaml": SHOP})
    assert podslice("apply", "-f", "shop.yaml").code == 0

    def arguments_of(*given):
        with pytest.raises(Became):
            podslice("logs", *given)
        command = executed.pop()
        assert (command.file, command.arguments[0]) == ("/bin/true", "journalctl")
        return command.arguments[1:]

    return arguments_of


def test_an_adopted_service_is_a_container(shop, here, podslice):
    text = "[X-Podslice]\nPod=default/shop\nContainer=nginx\n\n[Service]\nSlice=x.slice\n"
    make_files(here / "etc-False/systemd/system/nginx.service.d", {"50-podslice.conf": text})
    (group, *_) = " ".join(shop("shop", "-c", "nginx")[2:]).split(" + ")
    assert "_SYSTEMD_UNIT=nginx.service" in group
    assert "its containers: app, log, nginx" in podslice("logs", "shop", "-c", "db").err


def test_the_output_of_the_containers_is_shown(shop):
    """What systemd and podman report about them is not their output."""
    units = " ".join(f"_SYSTEMD_UNIT={unit}" for unit in APP)
    (group,) = " ".join(shop("shop", "--tail", "5")[3:]).split(" + ")
    assert units in group


def test_all_messages_of_the_whole_pod_are_those_in_its_slice(shop):
    given = shop("shop", "--all")
    assert given[:2] == ("--quiet", "--all")
    groups = " ".join(given[2:]).split(" + ")
    assert len(groups) == 3
    assert {f"_SYSTEMD_UNIT={unit}" for unit in APP} < set(groups[0].split())
    assert groups[1].split()[0] == "_PID=1"
    assert {f"UNIT={unit}" for unit in APP} < set(groups[1].split())
    assert set(groups[2].split()) == {
        "_SYSTEMD_SLICE=kubepods-podu_1.slice",
        "_SYSTEMD_SLICE=kubepods-burstable-podu_1.slice",
        "_SYSTEMD_SLICE=kubepods-besteffort-podu_1.slice",
    }


def test_options_select_a_container_and_are_passed_on(shop):
    options = ("-c", "app", "-f", "--lines", "5", "-o", "cat")
    output = (
        *("--quiet", "--all", "--lines=5", "--follow", "--output=cat"),
        *(f"_SYSTEMD_UNIT={unit}" for unit in APP),
    )
    assert shop("default/shop", *options) == output
    by_manager = ("+", "_PID=1", *(f"UNIT={unit}" for unit in APP))
    assert shop("default/shop", *options, "--all") == (*output, *by_manager)


def test_containers_of_runtimes_are_found_by_their_ids(shop, monkeypatch):
    def running(name, container, uid):
        return runtimes.RuntimeContainer(
            runtime="podman",
            id=f"id-{name}",
            name=name,
            pid=1,
            pod_key=None,
            pod_uid=uid,
            container=container,
            control_group="/",
        )

    async def containers(*_, **__):
        return (running("a", "app", "u-1"), running("b", None, "u-1"), running("c", "app", "u-2"))

    monkeypatch.setattr(runtimes, "containers", containers)
    assert shop("shop")[-4:] == ("+", "_UID=0", "CONTAINER_ID_FULL=id-a", "CONTAINER_ID_FULL=id-b")
    assert shop("shop", "-c", "app")[-3:] == ("+", "_UID=0", "CONTAINER_ID_FULL=id-a")


def test_messages_of_an_evicted_pod_are_found_by_its_uid(shop, here):
    marks = here / "run-False/evicted"
    marks.mkdir(parents=True)
    (marks / "u-2.json").write_text(
        '{"pod": "default/old", "uid": "u-2", "digest": "", "signal": "", "message": "",'
        ' "at_usec": 1}'
    )
    assert "_SYSTEMD_SLICE=kubepods-burstable-podu_2.slice" in shop("old")
    assert "_SYSTEMD_UNIT=podslice-podu_2-main.service" in shop("old", "-c", "main")


def test_a_user_manager_has_other_fields():
    query = LogQuery(units=["a.service"], slices=["b.slice"], since=" 2h", manager=USER)
    uid = f"_UID={USER.uid}"
    assert query.arguments == [
        *("--quiet", "--all", "--since=-2h"),
        *(uid, "_SYSTEMD_USER_UNIT=a.service", "+", uid, "USER_UNIT=a.service"),
        *("+", uid, "_SYSTEMD_USER_SLICE=b.slice"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shpo"], "error: default/shpo: no such pod; did you mean default/shop?"),
        (["-n", "prod", "shop"], "error: prod/shop: no such pod; did you mean default/shop?"),
        (
            ["shop", "-c", "ap"],
            (
                "error: pod default/shop: it has no container 'ap'; did you mean app?"
                " its containers: app, log"
            ),
        ),
        (
            ["shop", "-c", "overhead"],
            "error: pod default/shop: it has no container 'overhead'; its containers: app, log",
        ),
        (["shop", "-o", "xml"], "error: --output: 'xml' is not a format of journalctl; see: jour"),
        (["shop", "--since", "soon"], "error: --since: 'soon' is not a time; write 2h, "),
    ],
)
@pytest.mark.usefixtures("shop")
def test_wrong_names_are_invalid_input_with_the_nearest_name(
    podslice, monkeypatch, arguments, message
):
    monkeypatch.setattr(journal.shutil, "which", lambda _: "/bin/false")
    ended = podslice("logs", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(message)


def test_without_a_readable_journal_there_are_no_messages(shop, podslice, monkeypatch, tmp_path):
    assert podslice("apply", "-f", "shop.yaml", "--user").code == 0
    monkeypatch.setattr(journal.os, "geteuid", lambda: 1000)
    (tmp_path / "journal/0123/system.journal").unlink()
    for user in ((), ("--user",)):
        ended = podslice("logs", "shop", *user)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err.startswith("error: permission to read the journal denied: run as root")


def test_a_user_without_access_to_the_journal_reads_it_with_sudo(shop, monkeypatch, tmp_path):
    manager = user_manager(1000, {"XDG_RUNTIME_DIR": "/run/user/1000", "HOME": "/home/ada"})
    monkeypatch.setattr(journal.os, "geteuid", lambda: 1000)
    assert journal.reading_command(APP[1], manager) == f"journalctl --user -u {APP[1]}"
    (tmp_path / "journal/0123/system.journal").unlink()
    assert journal.reading_command(APP[1], SYSTEM) == f"journalctl -u {APP[1]}"
    assert journal.reading_command(APP[1], manager) == (
        f"sudo journalctl _SYSTEMD_USER_UNIT={APP[1]}"
    )


def test_without_journalctl_there_are_no_messages(shop, podslice, monkeypatch):
    monkeypatch.setattr(journal.shutil, "which", lambda _: None)
    assert podslice("logs", "shop") == (
        1,
        "",
        "error: journalctl is not installed; messages of services are in systemd's journal only\n",
    )

"""Completions never block and report no errors, whatever the directory of records contains."""

import json
import os

import pytest

from podslice.cli import completion
from podslice.model.node_state import AgentState, PendingPod
from podslice.store.store import Store
from tests.unit.builders import besteffort, make_files


@pytest.mark.parametrize("words", [["status"], ["readmit"]])
@pytest.mark.parametrize("content", [None, "[" * 100_000, "{", "[]", "5", '{"manifest": 5}'])
def test_a_damaged_record_gives_no_name(tmp_path, monkeypatch, capsys, words, content):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    store = Store(tmp_path / "podslice")
    store.save(besteffort("web"))
    store.marks.mkdir()
    (store.marks / "web.json").write_text(json.dumps({"pod": "default/web"}))
    directories = (store.root / "pods", store.marks)
    for odd in (*(each / "odd.json" for each in directories), store.root / "agent.json"):
        if content is None:
            os.mkfifo(odd)  # a reader would wait for a writer
        else:
            odd.write_text(content)
    assert completion.main(["pods", "podslice", *words, "--user", ""]) == 0
    assert capsys.readouterr() == ("web\n", "")


ODD = ("a\x1b[31m", "b\nc", "d\u202ee", "$(f)", "g h", "\udcff", "é", 5, None, ["i"], {"j": 1})


@pytest.mark.parametrize("odd", ODD)
def test_only_names_are_printed(tmp_path, monkeypatch, capsys, odd):
    """A damaged record may have control characters and values of other types."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    store = Store(tmp_path / "podslice")
    store.save(besteffort("web"))
    (saved,) = (store.root / "pods").glob("*.json")
    record = json.loads(saved.read_text())
    containers = record["manifest"]["spec"]["containers"]
    containers.append({**containers[0], "name": odd})
    saved.write_text(json.dumps(record))
    for place in ("name", "namespace"):
        changed = json.loads(saved.read_text())
        changed["manifest"]["metadata"][place] = odd
        (store.root / f"pods/{place}.json").write_text(json.dumps(changed))
    store.marks.mkdir()
    (store.marks / "odd.json").write_text(json.dumps({"pod": odd}))
    for verb in ("status", "readmit", "tree"):
        assert completion.main(["pods", "podslice", verb, "--user", ""]) == 0
        names, err = capsys.readouterr()
        expected = {"status": {"web"}, "readmit": set(), "tree": {"web"}}[verb]
        assert expected <= {*names.splitlines()}
        assert not err
        assert all(each.isalnum() or each in "-./\n" for each in names)
        assert names.isascii()
    assert completion.main(["containers", "podslice", "run", "web", "--user", ""]) == 0
    assert capsys.readouterr().out.split() == [each["name"] for each in containers[:-1]]


def test_services_that_exist_are_completed(tmp_path, monkeypatch, capsys):
    directory = tmp_path / "systemd/user"
    make_files(directory, {"web.service": "", "job@.service": "", "web.timer": ""})
    make_files(directory, {"db.service.d/50-podslice.conf": "", "web.service.d/90-own.conf": ""})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(completion, "_USER", ())
    for verb, names in (("adopt", "web.service\n"), ("release", "db.service\n")):
        assert completion.main(["units", "podslice", verb, "--user", ""]) == 0
        assert capsys.readouterr() == (names, "")


def test_status_completes_all_wanted_pods(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    store = Store(tmp_path / "podslice")
    store.save(besteffort("web"))
    store.marks.mkdir()
    (store.marks / "shop.json").write_text(json.dumps({"pod": "default/shop"}))
    big = PendingPod(pod="lab/big", reason="OutOfcpu", message="requests 100")
    store.agent.save(AgentState(pid=1, started_ticks=2, pending=(big,)))
    for verb, names in (("status", "lab/big\nshop\nweb\n"), ("tree", "web\n")):
        assert completion.main(["pods", "podslice", verb, "--user", ""]) == 0
        assert capsys.readouterr() == (names, "")


@pytest.mark.parametrize("directory", ["/" + "a" * 5000, "/dev/null", "\udcff"])
def test_a_directory_that_cannot_be_gives_no_name(monkeypatch, capsys, directory):
    monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
    assert completion.main(["pods", "podslice", "status", "--user", ""]) == 0
    assert capsys.readouterr() == ("", "")

"""Completions never block and report no errors, whatever the directory of records contains."""

import json
import os

import pytest

from podslice.cli import completion
from podslice.cli.app import run
from podslice.model.node_state import AgentState, PendingPod
from podslice.store.store import Store
from tests.unit.builders import besteffort, make_files, manifest
from tests.unit.cli.pods import mark_evicted


@pytest.fixture
def complete(monkeypatch, capsys):
    """Return what bash would propose after these words, of which the last one is incomplete."""

    def call(*words):
        monkeypatch.setenv("_PODSLICE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["podslice", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit):
            run([])
        out, err = capsys.readouterr()
        assert not err
        return out.split()

    return call


@pytest.mark.parametrize("words", [["status"], ["readmit"]])
@pytest.mark.parametrize("content", [None, "[" * 100_000, "{", "[]", "5", '{"manifest": 5}'])
def test_a_damaged_record_gives_no_name(tmp_path, monkeypatch, complete, words, content):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    store = Store(tmp_path / "podslice")
    store.save(besteffort("web"))
    store.marks.mkdir()
    mark_evicted(store, besteffort("web"))
    directories = (store.root / "pods", store.marks)
    for odd in (*(each / "odd.json" for each in directories), store.root / "agent.json"):
        if content is None:
            os.mkfifo(odd)  # a reader would wait for a writer
        else:
            odd.write_text(content)
    assert complete(*words, "--user", "") == ["web"]


ODD = ("a\x1b[31m", "b\nc", "d\u202ee", "$(f)", "g h", "\udcff", "é", 5, None, ["i"], {"j": 1})


@pytest.mark.parametrize("odd", ODD)
def test_only_names_are_printed(tmp_path, monkeypatch, complete, odd):
    """A damaged record may have control characters and values of other types."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    store = Store(tmp_path / "podslice")
    store.save(besteffort("web"))
    (saved,) = (store.root / "pods").glob("*.json")
    text = saved.read_text()
    for place in ("name", "namespace"):
        changed = json.loads(text)
        changed["manifest"]["metadata"] |= {place: odd, "uid": f"odd-{place}"}
        (store.root / f"pods/{place}.json").write_text(json.dumps(changed))
    changed = json.loads(text)
    changed["manifest"]["metadata"] |= {"name": "shop", "uid": "odd-container"}
    changed["manifest"]["spec"]["containers"][0]["name"] = odd
    (store.root / "pods/shop.json").write_text(json.dumps(changed))
    mark_evicted(store, besteffort("db"))
    (mark,) = store.marks.glob("*.json")
    (store.marks / "odd.json").write_text(json.dumps({**json.loads(mark.read_text()), "pod": odd}))
    for verb, expected in (("status", {"web", "db"}), ("readmit", {"db"}), ("tree", {"web"})):
        names = complete(verb, "--user", "")
        assert expected <= {*names} <= {*expected, "shop"}
    assert complete("run", "--user", "web", "-c", "") == ["main"]


def test_services_that_exist_are_completed(tmp_path, monkeypatch, complete):
    directory = tmp_path / "systemd/user"
    make_files(directory, {"web.service": "", "job@.service": "", "web.timer": ""})
    make_files(directory, {"db.service.d/50-podslice.conf": "", "web.service.d/90-own.conf": ""})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(completion, "_USER", ())
    for verb, names in (("adopt", ["web.service"]), ("release", ["db.service"])):
        pod = ["web"] if verb == "adopt" else []
        assert complete(verb, "--user", *pod, "") == names


def test_status_completes_all_wanted_pods(tmp_path, monkeypatch, complete):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    store = Store(tmp_path / "podslice")
    store.save(besteffort("web"))
    mark_evicted(store, besteffort("shop"))
    monkeypatch.setattr(completion, "living_agent", lambda store: store.agent.read())
    big = PendingPod(pod="lab/big", reason="OutOfcpu", message="requests 100")
    store.agent.save(AgentState(pid=1, started_ticks=2, pending=(big,)))
    for verb, names in (("status", ["lab/big", "shop", "web"]), ("tree", ["web"])):
        assert complete(verb, "--user", "") == names


@pytest.mark.parametrize("directory", ["/" + "a" * 5000, "/dev/null", "\udcff"])
def test_a_directory_that_cannot_be_gives_no_name(monkeypatch, complete, directory):
    monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
    assert complete("status", "--user", "") == []


def test_verbs_options_and_values_are_completed(complete):
    assert complete("sta") == ["status"]
    assert complete("apply", "--na") == ["--namespace"]
    assert "__restore_reserved" not in complete("")


def test_names_are_those_of_the_namespace_and_of_the_files(complete, tmp_path):
    shop = manifest("api").replace('"name": "api"', '"name": "api", "namespace": "shop"')
    make_files(tmp_path, {"web.yaml": manifest("web"), "shop.yaml": shop})
    files = ("-f", f"{tmp_path}/web.yaml", "-f", f"{tmp_path}/shop.yaml")
    assert complete("explain", *files, "") == ["shop/api", "web"]
    assert complete("explain", *files, "-n", "") == ["default", "shop"]


def test_evicted_pods_can_be_readmitted(tmp_path, monkeypatch, complete):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    store = Store(tmp_path / "podslice")
    mark_evicted(store, besteffort("web"))
    mark_evicted(store, besteffort("api", namespace="shop"))
    make_files(store.root / "pods", {"batch.json": "{"})
    assert complete("readmit", "--user", "") == ["shop/api", "web"]
    assert complete("delete", "--user", "") == []

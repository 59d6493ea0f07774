"""Completions never block and report no errors, whatever the directory of records contains."""

import json
import os

import pytest

from podslice.cli import completion
from podslice.store import Store
from tests.unit.builders import besteffort


@pytest.mark.parametrize("words", [["status"], ["readmit"]])
@pytest.mark.parametrize("content", [None, "[" * 100_000, "{", "[]", "5", '{"manifest": 5}'])
def test_a_damaged_record_gives_no_name(tmp_path, monkeypatch, capsys, words, content):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    store = Store(tmp_path / "podslice")
    store.save(besteffort("web"))
    store.marks.mkdir()
    (store.marks / "web.json").write_text(json.dumps({"pod": "default/web"}))
    for odd in (store.root / "pods/odd.json", store.marks / "odd.json"):
        if content is None:
            os.mkfifo(odd)  # a reader would wait for a writer
        else:
            odd.write_text(content)
    assert completion.main(["pods", "podslice", *words, "--user", ""]) == 0
    assert capsys.readouterr() == ("web\n", "")


@pytest.mark.parametrize("directory", ["/" + "a" * 5000, "/dev/null", "\udcff"])
def test_a_directory_that_cannot_be_gives_no_name(monkeypatch, capsys, directory):
    monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
    assert completion.main(["pods", "podslice", "status", "--user", ""]) == 0
    assert capsys.readouterr() == ("", "")

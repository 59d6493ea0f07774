"""The starts and ends of containers."""

import os

import pytest

from podslice.errors import HostError
from podslice.model.container_exit import ContainerExit, ContainerHistory
from podslice.store import files as store_files
from podslice.store import histories
from tests.unit.builders import besteffort

START = 1_700_000_000_000_000
LATER = START + 90_000_000
ENDED = {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "7"}


def end(store, started_usec=START, content=None, ended_usec=LATER):
    path = store.histories.end_path("web", "main", started_usec)
    if content is None:
        histories.save_end(path, ENDED)
    else:
        path.write_bytes(content)
    os.utime(path, ns=(0, ended_usec * 1000))


def exit_(result="exit-code", started_usec=START, ended_usec=LATER, **fields):
    return ContainerExit(
        **{"result": result, "started_usec": started_usec, "ended_usec": ended_usec, **fields}
    )


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def main(store):
    return store.histories.read("web").get("main")


def test_a_pod_has_no_history_until_a_container_starts(store):
    assert store.histories.read("web") == {}
    store.histories.save_start("web", "main", START)
    assert store.histories.read("web") == {"main": ContainerHistory(started_usec=START)}
    assert main(store).exit_of(is_running=True) is None


def test_the_last_end_and_the_restarts_are_kept(store):
    store.histories.save_start("web", "main", START)
    end(store)
    last = exit_(exit_code=7)
    assert last.duration_usec == 90_000_000
    assert main(store) == ContainerHistory(started_usec=START, last_exit=last)
    store.histories.save_start("web", "main", LATER)
    assert main(store) == ContainerHistory(started_usec=LATER, restarts=1, last_exit=last)
    assert main(store).exit_of(is_running=True) == last
    assert names(store.root / "containers/web") == ["main.json"]


def test_an_end_may_precede_the_record_of_the_start(store):
    end(store)
    assert main(store) is None
    store.histories.save_start("web", "main", START)
    assert main(store).last_exit == exit_(exit_code=7)


def test_an_end_that_was_not_recorded_is_unknown(store):
    store.histories.save_start("web", "main", START)
    unknown = exit_("unknown", ended_usec=None)
    assert main(store).exit_of(is_running=False) == unknown
    assert unknown.duration_usec is None
    store.histories.save_start("web", "main", LATER)
    assert main(store) == ContainerHistory(started_usec=LATER, restarts=1, last_exit=unknown)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b"EXIT_STATUS=KILL\0SERVICE_RESULT=oom-kill\0EXIT_CODE=killed\0",
            exit_("oom-kill", signal="SIGKILL", is_oom=True),
        ),
        (
            b"SERVICE_RESULT=signal\0EXIT_CODE=killed\0EXIT_STATUS=KILL\0low 0\noom_kill 2\n",
            exit_("signal", signal="SIGKILL", is_oom=True),
        ),
        (
            b"SERVICE_RESULT=success\0EXIT_CODE=exited\0EXIT_STATUS=0\0low 0\noom_kill 2\n",
            exit_("success", exit_code=0),
        ),
        (b"SERVICE_RESULT=resources\0", exit_("resources")),
        (b"", exit_("unknown")),
        (b"SERVICE_RESULT=\x1b[2J\0", exit_("unknown")),
        (b"SERVICE_RESULT=signal\0EXIT_CODE=killed\0EXIT_STATUS=a b\0", exit_("unknown")),
        (b"SERVICE_RESULT=exit-code\0EXIT_CODE=exited\0EXIT_STATUS=x\0", exit_("unknown")),
    ],
)
def test_an_end_as_a_service_records_it(store, content, expected):
    store.histories.save_start("web", "main", START)
    end(store, content=content)
    assert main(store).last_exit == expected


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"started_usec": 1, "restarts": -1, "last_exit": null}', "[" * 10_000],
)
def test_files_that_are_not_valid_are_ignored(store, content):
    store.histories.save_start("web", "main", START)
    (store.root / "containers/web/main.json").write_text(content)
    assert store.histories.read("web") == {}
    store.histories.save_start("web", "main", LATER)
    assert main(store) == ContainerHistory(started_usec=LATER)


def test_the_history_is_removed_with_the_pod(store):
    for name in ("web", "shop"):
        store.save(besteffort(name))
        store.histories.save_start(name, "main", START)
    path = store.histories.end_path("web", "main", START)
    store.remove("web")
    histories.save_end(path, ENDED)
    assert names(store.root / "containers") == ["shop"]
    (store.root / "pods/shop.json").unlink()
    store.tidy()
    assert not (store.root / "containers").exists()


def test_a_start_that_may_not_be_recorded_is_an_error(store, no_permission):
    no_permission(store_files, "replace_file")
    with pytest.raises(HostError, match="Permission denied; run as root"):
        store.histories.save_start("web", "main", START)

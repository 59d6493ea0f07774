"""Files of quadlets on disk."""

import errno
import os
from contextlib import suppress

import pytest

from podslice.errors import HostError, InputError
from podslice.features.quadlet.files import (
    Directories,
    installed,
    place,
    read_installed,
    remove_file,
    write_file,
    write_quadlets,
)
from podslice.features.quadlet.result import Directory, File, Quadlets
from podslice.model.unit import GENERATED, SYSTEM, UnitName, user_manager
from tests.cases.tables import cases

DATA = "volumes/default_web"
OWN = Directory(path=DATA, mode=0o700)


def unit_file(path, pod="default/web", **options):
    text = f"{GENERATED}\n\n[Unit]\nDescription=Container app of pod {pod}\n"
    return File(path=path, content=text.encode(), **options)


def quadlets(*files, pod="default/web", directories=()):
    return Quadlets(
        pod=pod,
        service=UnitName("web-pod.service"),
        files=files,
        directories=directories,
        data=DATA,
    )


@pytest.fixture
def directories(tmp_path):
    return Directories(
        generator=tmp_path / "containers", units=tmp_path / "units", own=tmp_path / "own"
    )


def mode_of(path):
    return path.stat().st_mode & 0o777


def test_files_have_their_places_and_modes(directories):
    done = write_quadlets(
        [
            quadlets(
                unit_file("web-app.container", mode=0o600),
                File(path=f"{DATA}/c/conf", content=b"\xff", mode=0o440),
                unit_file("podslice-probe.service"),
                directories=(OWN, Directory(path=f"{DATA}/c", mode=0o755)),
            )
        ],
        directories,
    )
    assert done.removed == []
    assert done.written == [
        str(directories.generator / "web-app.container"),
        str(directories.own / DATA / "c/conf"),
        str(directories.units / "podslice-probe.service"),
    ]
    assert mode_of(directories.generator / "web-app.container") == 0o600
    assert mode_of(directories.own / "volumes") == 0o700
    assert mode_of(directories.own / DATA) == 0o700
    assert mode_of(directories.own / DATA / "c") == 0o755
    assert (directories.own / DATA / "c/conf").read_bytes() == b"\xff"
    assert mode_of(directories.own / DATA / "c/conf") == 0o440
    assert [each.name for each in directories.generator.iterdir()] == ["web-app.container"]
    assert [each.name for each in (directories.own / DATA / "c").iterdir()] == ["conf"]


def test_data_has_its_group(directories):
    file = File(path=f"{DATA}/conf", content=b"", mode=0o440, gid=os.getgid())
    write_quadlets([quadlets(unit_file("web.pod"), file, directories=(OWN,))], directories)
    assert (directories.own / file.path).stat().st_uid == os.getuid()
    present = read_installed(directories)["default/web"]
    assert present.access == {file.path: (0o440, os.getgid())}
    assert present.has(file)


def test_the_same_pod_is_written_again(directories):
    write_quadlets([quadlets(unit_file("web-app.container"))], directories)
    write_quadlets([quadlets(unit_file("web-app.container", mode=0o600))], directories)
    assert mode_of(directories.generator / "web-app.container") == 0o600


def test_what_the_pod_no_longer_has_is_removed(directories):
    """Otherwise podman would continue to run a container that was taken out of the manifest."""
    log = File(path=f"{DATA}/log.env", content=b"A=b\n", is_secret=True)
    before = [
        unit_file("web-log.container"),
        unit_file("web-data.volume"),
        unit_file("podslice-probe-web.service"),
        log,
    ]
    kept = [unit_file("web.pod"), unit_file("web-app.container")]
    app = File(path=f"{DATA}/app.env", content=b"A=b\n", is_secret=True)
    write_quadlets([quadlets(*kept, *before, app, directories=(OWN,))], directories)
    others = {
        directories.generator / "other.container": unit_file("x", pod="default/other").content,
        directories.generator / "web-notes.txt": unit_file("x").content,
        directories.generator / "web-mine.container": b"[Container]\n",
        directories.units / "podslice-agent.service": b"[Service]\n",
    }
    for path, content in others.items():
        path.write_bytes(content)
    done = write_quadlets([quadlets(*kept, app, directories=(OWN,))], directories)
    assert sorted(done.removed) == sorted(str(place(each.path, directories)) for each in before)
    assert not any(place(each.path, directories).exists() for each in before)
    assert all(place(each.path, directories).exists() for each in kept)
    assert {path: path.read_bytes() for path in others} == others
    done = write_quadlets([quadlets(*kept)], directories)
    assert done.removed == [str(directories.own / DATA)]
    assert list((directories.own / "volumes").iterdir()) == []


def make_link(path, target):
    target.mkdir(exist_ok=True)
    (target / "kept").write_text("kept")
    path.symlink_to(target)


OBSTACLES = {
    "a link instead of the directory of all pods": ("volumes", "is a link, not a directory"),
    "a link instead of the directory of the pod": (DATA, "is a link, not a directory"),
    "a link instead of a volume": (f"{DATA}/c", "is a link, not a regular file"),
    "a link instead of a file": (f"{DATA}/c/conf", "is a link, not a regular file"),
    "a link beside the files": (f"{DATA}/c/other", "is a link, not a regular file"),
}


def with_conf(content=b"new"):
    conf = File(path=f"{DATA}/c/conf", content=content)
    below = Directory(path=f"{DATA}/c", mode=0o755)
    return quadlets(unit_file("web.pod"), conf, directories=(OWN, below))


@pytest.mark.parametrize(("path", "message"), OBSTACLES.values(), ids=OBSTACLES)
def test_a_link_among_the_data_is_refused_and_never_followed(directories, tmp_path, path, message):
    target, place = tmp_path / "target", directories.own / path
    place.parent.mkdir(parents=True)
    make_link(place, target)
    other = quadlets(unit_file("other.pod", pod="default/other"), pod="default/other")
    done = write_quadlets([with_conf(), other], directories)
    (problem,) = done.problems
    assert (problem.where, problem.message) == (str(place), message)
    assert problem.hint == "podslice did not create it: move it elsewhere, or remove it"
    # nothing of the pod was written, and the other one is there
    assert done.written == [str(directories.generator / "other.pod")]
    assert [each.name for each in directories.generator.iterdir()] == ["other.pod"]
    assert [each.name for each in target.iterdir()] == ["kept"]
    # the link is removed with the pod, and what it leads to stays
    remove_file(DATA, directories)
    assert place.is_symlink() is (path == "volumes")
    assert (target / "kept").read_text() == "kept"


@pytest.mark.parametrize("path", [DATA, f"{DATA}/c/conf"])
def test_a_pipe_among_the_data_is_refused_and_does_not_block(directories, path):
    place = directories.own / path
    place.parent.mkdir(parents=True)
    os.mkfifo(place)
    done = write_quadlets([with_conf()], directories)
    assert [each.where for each in done.problems] == [str(place)]
    assert "is a pipe, not a" in done.problems[0].message
    remove_file(DATA, directories)
    assert list((directories.own / "volumes").iterdir()) == []


@pytest.mark.parametrize("name", ["..", ".", "", "x" * 256, "a\0b"])
def test_a_name_that_no_file_can_have_is_refused(directories, name):
    """Whatever has let it through: a volume of this name would be outside of the pod's directory."""
    bad = File(path=f"{DATA}/{name}/conf", content=b"")
    done = write_quadlets([quadlets(unit_file("web.pod"), bad, directories=(OWN,))], directories)
    assert done.written == []
    assert len(done.problems) == 1
    assert not directories.generator.exists()
    assert not directories.own.exists()


def test_a_link_that_is_put_there_meanwhile_is_not_followed(directories, tmp_path):
    """Between the check and the write."""
    write_quadlets([with_conf()], directories)
    target = tmp_path / "target"
    volume = directories.own / DATA / "c"
    (volume / "conf").unlink()
    make_link(volume / "conf", target)
    write_file(with_conf(b"newer").files[1], directories)
    assert (volume / "conf").read_bytes() == b"newer"
    assert not (volume / "conf").is_symlink()
    (volume / "conf").unlink()
    volume.rmdir()
    make_link(volume, target)
    for change in (write_file, lambda file, where: remove_file(file.path, where)):
        with suppress(OSError):
            change(File(path=f"{DATA}/c/kept", content=b"x"), directories)
        assert (target / "kept").read_text() == "kept"
    with pytest.raises(NotADirectoryError) as refused:
        directories.data.make(with_conf().directories[1])
    assert refused.value.filename == str(volume)


def test_podslices_own_directory_may_be_a_link(directories, tmp_path):
    """An administrator may keep it on another disk."""
    (tmp_path / "disk").mkdir()
    directories.own.symlink_to(tmp_path / "disk")
    assert write_quadlets([with_conf()], directories).problems == []
    assert (tmp_path / "disk" / DATA / "c/conf").read_bytes() == b"new"


def test_a_file_becomes_a_directory_and_a_directory_a_file(directories):
    def pod(*paths):
        files = (File(path=f"{DATA}/{each}", content=each.encode()) for each in paths)
        below = sorted({f"{DATA}/{each}".rpartition("/")[0] for each in paths} - {DATA})
        made = (Directory(path=each, mode=0o755) for each in below)
        return quadlets(unit_file("web.pod"), *files, directories=(OWN, *made))

    for paths in (["c/a"], ["c/a/b"], ["c/a"]):
        done = write_quadlets([pod("c/x", *paths)], directories)
        assert done.problems == []
        files = [each for each in (directories.own / DATA).rglob("*") if each.is_file()]
        found = sorted(str(each.relative_to(directories.own / DATA)) for each in files)
        assert found == [*paths, "c/x"]


def test_data_may_have_the_text_of_a_unit(directories):
    """The first line of a unit, and the name of another pod, do not make it one of that pod."""
    pod = with_conf(unit_file("x", pod="default/other").content)
    for _ in range(2):
        assert write_quadlets([pod], directories).problems == []
    assert list(read_installed(directories)) == ["default/web"]


def test_data_without_units_is_found(directories):
    """As after a removal of the units by hand."""
    write_quadlets([with_conf()], directories)
    (directories.generator / "web.pod").unlink()
    present = read_installed(directories)["default/web"]
    assert (present.has_data, list(present.files)) == (True, [f"{DATA}/c/conf"])
    remove_file(DATA, directories)
    assert read_installed(directories) == {}


def test_a_disk_that_fails_is_not_taken_for_absent_data(directories, monkeypatch):
    write_quadlets([with_conf()], directories)

    def scandir(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(OSError, match="Input/output error"):
        directories.data.pods()


def test_an_empty_volume_remains(directories):
    """A ConfigMap without keys is mounted, too."""
    write_quadlets([with_conf()], directories)
    below = Directory(path=f"{DATA}/c", mode=0o755)
    done = write_quadlets([quadlets(unit_file("web.pod"), directories=(OWN, below))], directories)
    assert done.removed == [str(directories.own / DATA / "c/conf")]
    assert (directories.own / DATA / "c").is_dir()


@cases
def test_what_is_not_of_the_pod_stays(directories, before, message):
    """Nothing at all is written: half of a pod would be worse than none."""
    before = before.encode("latin-1")
    directories.generator.mkdir()
    foreign = directories.generator / "web-app.container"
    foreign.write_bytes(before)
    with pytest.raises(InputError, match=message):
        write_quadlets(
            [quadlets(unit_file("web.pod"), unit_file("web-app.container"))], directories
        )
    assert foreign.read_bytes() == before
    assert not (directories.generator / "web.pod").exists()


def test_two_pods_cannot_have_the_same_file(directories):
    pods = [
        quadlets(unit_file("a-b-c.container", pod=key), pod=key)
        for key in ("default/a", "default/b")
    ]
    with pytest.raises(InputError, match="two pods would write this file"):
        write_quadlets(pods, directories)


def test_a_link_is_replaced_and_not_followed(directories, tmp_path):
    directories.generator.mkdir()
    target = tmp_path / "target"
    target.write_bytes(unit_file("x").content)
    (directories.generator / "web.pod").symlink_to(target)
    with pytest.raises(InputError, match="not generated by podslice"):
        write_quadlets([quadlets(unit_file("web.pod"))], directories)


def test_a_directory_that_cannot_be_written(directories):
    directories.generator.write_text("a file")
    with pytest.raises(HostError):
        write_quadlets([quadlets(unit_file("web.pod"))], directories)


def test_the_directories_that_are_read():
    own = user_manager(1000, {"HOME": "/home/ada"})
    assert str(installed(SYSTEM).generator) == "/etc/containers/systemd"
    assert str(installed(SYSTEM).units) == "/etc/systemd/system"
    assert str(installed(SYSTEM).own) == "/var/lib/podslice"
    assert str(installed(own).own) == "/home/ada/.local/state/podslice"
    assert str(installed(own).generator) == "/home/ada/.config/containers/systemd"
    assert str(installed(own).units) == "/home/ada/.config/systemd/user"

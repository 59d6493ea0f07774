"""Manifest directories: their pods, and the effects of broken files."""

import os
from pathlib import Path

import pytest

from podslice.agent import manifests as module
from podslice.agent.manifests import ManifestDirectories
from podslice.errors import PROBLEMS_SHOWN, Severity
from podslice.inputs.budget import LIMITS, BudgetItem
from podslice.model.config import Validate
from podslice.model.pod import default_uid
from tests.unit.builders import besteffort, make_files, manifest


@pytest.fixture
def place(tmp_path):
    return make_files(tmp_path, {"manifests/web.yaml": manifest("web")}) / "manifests"


@pytest.fixture
def manifests(place):
    return ManifestDirectories([str(place)])


def names(contents):
    return [pod.name for pod in contents.pods]


def applied(name):
    """Return a pod as it is in its record."""
    return besteffort(name, uid=default_uid("default", name))


def lost(contents, name, file):
    return contents.has_lost(applied(name), str(file))


def two(first, second):
    return f"{manifest(first)}\n---\n{manifest(second)}\n"


def test_pods_come_with_their_files(manifests, place):
    make_files(place, {"both.yml": two("shop", "cache"), "a.json": manifest("batch")})
    contents = manifests.read()
    assert [(pod.key, contents.sources[pod.uid]) for pod in contents.pods] == [
        ("default/batch", f"{place}/a.json"),
        ("default/cache", f"{place}/both.yml"),
        ("default/shop", f"{place}/both.yml"),
        ("default/web", f"{place}/web.yaml"),
    ]
    assert contents.pods[2].where == f"{place}/both.yml[0]"
    assert (contents.problems, contents.broken, contents.unread) == ((), frozenset(), frozenset())


def test_other_files_are_ignored(manifests, place):
    make_files(place, {".hidden.yaml": "{", "web.yaml~": "{", "README": "{", "below/a.yaml": "{"})
    contents = manifests.read()
    assert (names(contents), contents.problems) == (["web"], ())


def test_a_missing_directory_has_no_pods(place):
    manifests = ManifestDirectories([f"{place}/nowhere/", str(place)])
    contents = manifests.read()
    assert (names(contents), contents.problems, contents.unread) == (["web"], (), frozenset())
    assert lost(contents, "other", f"{place}/nowhere/other.yaml")
    make_files(place, {"nowhere/other.yaml": manifest("other")})
    contents = manifests.read()
    assert names(contents) == ["other", "web"]
    assert contents.sources[contents.pods[0].uid] == f"{place}/nowhere/other.yaml"


def test_a_directory_that_is_named_twice_is_read_once(place):
    assert names(ManifestDirectories([str(place), f"{place}/"]).read()) == ["web"]


def test_an_unreadable_directory_loses_no_pod(tmp_path, place):
    file = tmp_path / "file"
    file.write_text("")
    contents = ManifestDirectories([str(file), str(place)]).read()
    assert names(contents) == ["web"]
    assert contents.unread == {str(file)}
    assert not lost(contents, "other", file / "other.yaml")
    (problem,) = contents.problems
    assert str(problem) == f"{file}: not a directory; pods applied from it remain unchanged"


def test_too_many_manifests_lose_no_pod(manifests, place, monkeypatch):
    monkeypatch.setattr(module, "FILES_MAX", 1)
    make_files(place, {"shop.yaml": manifest("shop")})
    contents = manifests.read()
    assert (names(contents), contents.unread) == ([], {str(place)})
    assert not lost(contents, "web", place / "web.yaml")
    assert "more than 1 manifests" in str(contents.problems[0])


def test_a_pod_is_lost_with_its_file(manifests, place):
    assert not lost(manifests.read(), "web", place / "web.yaml")
    (place / "web.yaml").unlink()
    contents = manifests.read()
    assert lost(contents, "web", place / "web.yaml")
    assert (contents.pods, contents.problems) == ((), ())


def test_a_pod_is_lost_when_its_file_has_another(manifests, place):
    manifests.read()
    make_files(place, {"web.yaml": manifest("shop")})
    contents = manifests.read()
    assert (names(contents), lost(contents, "web", place / "web.yaml")) == (["shop"], True)


def test_a_pod_of_another_uid_is_another_pod(manifests, place):
    text = manifest("web").replace('"name": "web"', '"name": "web", "uid": "0a1b-2c"')
    make_files(place, {"web.yaml": text})
    contents = manifests.read()
    assert [pod.uid for pod in contents.pods] == ["0a1b-2c"]
    assert lost(contents, "web", place / "web.yaml")


def test_a_pod_that_moves_to_another_file_stays(manifests, place):
    manifests.read()
    (place / "web.yaml").rename(place / "moved.yaml")
    contents = manifests.read()
    assert not lost(contents, "web", place / "web.yaml")
    assert list(contents.sources.values()) == [f"{place}/moved.yaml"]


BROKEN = {
    "empty, as while it is written": "",
    "only a comment": "# later\n",
    "cut off": manifest("web")[:-20],
    "no YAML": "a: [",
    "no pod": '{"apiVersion": "v1", "kind": "Podd", "metadata": {"name": "web"}, "spec": {}}',
    "bad quantity": manifest("web", {"cpu": "1core"}),
    "one of two": two("shop", "UPPER"),
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_loses_no_pod_and_harms_no_other(manifests, place, text):
    make_files(place, {"other.yaml": manifest("other")})
    manifests.read()
    make_files(place, {"web.yaml": text})
    contents = manifests.read()
    assert "other" in names(contents)
    assert "web" not in names(contents)
    assert contents.broken == {f"{place}/web.yaml"}
    assert not lost(contents, "web", place / "web.yaml")
    assert lost(contents, "gone", place / "other.yaml")
    assert any(each.severity is Severity.ERROR for each in contents.problems)
    assert all(each.where.startswith(f"{place}/web.yaml") for each in contents.problems)
    make_files(place, {"web.yaml": manifest("web")})
    contents = manifests.read()
    assert (names(contents), contents.problems, contents.broken) == (
        ["other", "web"],
        (),
        frozenset(),
    )


def test_valid_pods_of_a_broken_file_are_requested(manifests, place):
    make_files(place, {"both.yaml": two("shop", "UPPER")})
    contents = manifests.read()
    assert names(contents) == ["shop", "web"]
    assert contents.broken == {f"{place}/both.yaml"}


def test_a_warning_breaks_nothing(manifests, place):
    text = '{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}'
    make_files(place, {"web.yaml": f"{manifest('web')}\n---\n{text}\n"})
    contents = manifests.read()
    assert (names(contents), contents.broken) == (["web"], frozenset())
    assert [each.severity for each in contents.problems] == [Severity.WARNING]


def test_of_two_files_with_one_pod_the_first_wins(manifests, place):
    make_files(place, {"z.yaml": two("web", "zoo"), "a.yaml": manifest("web", {"cpu": "1"})})
    contents = manifests.read()
    assert [(pod.name, Path(contents.sources[pod.uid]).name) for pod in contents.pods] == [
        ("web", "a.yaml"),
        ("zoo", "z.yaml"),
    ]
    assert contents.broken == {f"{place}/web.yaml", f"{place}/z.yaml"}
    why = f"the name default/web is used by a pod of {place}/a.yaml"
    assert [str(problem) for problem in contents.problems] == [
        f"{place}/web.yaml: {why}; remove one of the two",
        f"{place}/z.yaml[0]: {why}; remove one of the two",
    ]


def test_no_two_pods_have_one_uid(place, manifests):
    text = manifest("zoo").replace('"name": "zoo"', '"name": "zoo", "uid": "0a1b-2c"', 1)
    make_files(place, {"y.yaml": text, "z.yaml": text.replace("zoo", "zap")})
    contents = manifests.read()
    assert names(contents) == ["web", "zoo"]
    assert "z.yaml: the uid 0a1b-2c is used by a pod of" in str(contents.problems[0])


def owner_of(contents, name):
    return {pod.name: Path(contents.sources[pod.uid]).name for pod in contents.pods}.get(name)


def test_an_applied_pod_stays_with_its_file(manifests, place):
    """A new file does not take the pod over because its name sorts first."""
    make_files(place, {"a.yaml": manifest("web", {"cpu": "1"})})
    contents = manifests.read({"default/web": f"{place}/web.yaml"})
    assert owner_of(contents, "web") == "web.yaml"
    why = f"the name default/web is used by a pod of {place}/web.yaml"
    assert list(map(str, contents.problems)) == [f"{place}/a.yaml: {why}; remove one of the two"]
    assert contents.broken == {f"{place}/a.yaml"}


def test_an_applied_pod_keeps_its_uid(manifests, place):
    text = manifest("zoo").replace('"name": "zoo"', '"name": "zoo", "uid": "0a1b-2c"', 1)
    make_files(place, {"z.yaml": text, "a.yaml": text.replace('"zoo"', '"zap"')})
    contents = manifests.read({"default/zoo": f"{place}/z.yaml", "0a1b-2c": f"{place}/z.yaml"})
    assert names(contents) == ["web", "zoo"]
    assert "a.yaml: the uid 0a1b-2c is used by a pod of" in str(contents.problems[0])


@pytest.mark.parametrize("text", ["{", manifest("UPPER")])
def test_an_applied_pod_stays_with_a_file_that_became_invalid(manifests, place, text):
    """The file may still contain the pod."""
    make_files(place, {"web.yaml": text, "a.yaml": manifest("web", {"cpu": "1"})})
    contents = manifests.read({"default/web": f"{place}/web.yaml"})
    assert owner_of(contents, "web") is None
    assert not lost(contents, "web", place / "web.yaml")
    assert any("the name default/web is used" in str(each) for each in contents.problems)


@pytest.mark.parametrize("text", [manifest("other"), None])
def test_an_applied_pod_moves_to_the_file_that_has_it_now(manifests, place, text):
    make_files(place, {"a.yaml": manifest("web", {"cpu": "1"})})
    if text is None:
        (place / "web.yaml").unlink()
    else:
        make_files(place, {"web.yaml": text})
    contents = manifests.read({"default/web": f"{place}/web.yaml"})
    assert (owner_of(contents, "web"), contents.problems) == ("a.yaml", ())


def test_directories_count_in_their_order(place):
    make_files(place.parent, {"second/a.yaml": manifest("web")})
    contents = ManifestDirectories([str(place), str(place.parent / "second")]).read()
    assert list(contents.sources.values()) == [f"{place}/web.yaml"]


def test_pods_without_a_name_are_not_the_same(manifests, place):
    """Only the missing names are reported."""
    text = manifest("web").replace('"name": "web"', '"labels": {}')
    make_files(place, {"web.yaml": text, "x.yaml": text})
    assert all("a name is required" in str(each) for each in manifests.read().problems)


def test_a_file_that_has_not_changed_is_not_read_again(manifests, place, monkeypatch):
    make_files(place, {"broken.yaml": "{", "shop.yaml": manifest("shop")})
    first, read = manifests.read(), []
    load_text = module.load_text
    monkeypatch.setattr(
        module,
        "load_text",
        lambda data, name, *rest, **options: (
            read.append(name) or load_text(data, name, *rest, **options)
        ),
    )
    second = manifests.read()
    assert (second, read) == (first, [])
    assert all(a is b for a, b in zip(first.pods, second.pods, strict=True))
    make_files(place, {"shop.yaml": manifest("shop", {"cpu": "1"})})
    assert manifests.read().pods[0].containers[0].resources.requests == {"cpu": 1000}
    assert read == [f"{place}/shop.yaml"]


def test_a_replaced_file_is_read(manifests, place):
    """A rename keeps size and time of the new file."""
    status = (place / "web.yaml").stat()
    manifests.read()
    new = place / "new"
    new.write_text(manifest("wob"))
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(place / "web.yaml")
    assert names(manifests.read()) == ["wob"]


def test_a_failed_read_is_retried(manifests, place, monkeypatch):
    manifests.read()
    make_files(place, {"web.yaml": manifest("web", {"cpu": "1"})})

    def fail(*_, **__):
        raise OSError(23, "Too many open files in system")

    with monkeypatch.context() as patch:
        patch.setattr("podslice.inputs.source.os.open", fail)
        contents = manifests.read()
    assert contents.broken == {f"{place}/web.yaml"}
    assert str(contents.problems[0]) == f"{place}/web.yaml: too many open files in system"
    assert names(manifests.read()) == ["web"]


def test_a_file_removed_while_it_is_read_has_no_pods(manifests, place, monkeypatch):
    def gone(path, _):
        Path(path).unlink()
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(module, "read_manifest", gone)
    contents = manifests.read()
    assert contents.problems == ()
    assert lost(contents, "web", place / "web.yaml")


def make_pipe(path):
    os.mkfifo(path)


def make_loop(path):
    path.symlink_to(path)


def make_dangling(path):
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_pipe, "is a pipe, not a regular file"),
        (make_loop, "too many levels of symbolic links"),
        (make_dangling, "is a broken link"),
    ],
)
def test_an_irregular_file_is_reported_and_does_not_block(manifests, place, make, message):
    file = place / "web.yaml"
    file.unlink()
    make(file)
    for _ in range(2):
        contents = manifests.read()
        assert [str(each) for each in contents.problems] == [f"{file}: {message}"]
        assert not lost(contents, "web", file)
    file.unlink()
    make_files(place, {"web.yaml": manifest("web")})
    assert names(manifests.read()) == ["web"]


def test_a_link_to_a_file_of_another_user_is_not_followed(manifests, place, monkeypatch):
    path = place / "web.yaml"
    path.unlink()
    path.symlink_to("/etc/passwd")
    if os.getuid() == 0:
        os.lchown(path, 4711, 4711)
    owner = os.lstat(path).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    (problem,) = manifests.read().problems
    assert str(problem).startswith(f"{path}: is a link of user {owner} to a file of another user")


def test_a_link_to_a_manifest_is_read(manifests, place):
    """Configuration management and mounted ConfigMaps create such links."""
    make_files(place.parent, {"v1/web": manifest("web"), "v2/web": manifest("web", {"cpu": "1"})})
    (place / "web.yaml").unlink()
    (place / "web.yaml").symlink_to("../v1/web")
    assert names(manifests.read()) == ["web"]
    (place / "new").symlink_to("../v2/web")
    (place / "new").replace(place / "web.yaml")
    (each,) = manifests.read().pods
    assert each.containers[0].resources.requests == {"cpu": 1000}


@pytest.mark.parametrize(
    ("validate", "found", "is_broken", "count"),
    [
        (Validate.STRICT, ["shop", "web"], True, 1),
        (Validate.WARN, ["shop", "typo", "web"], False, 1),
        (Validate.IGNORE, ["shop", "typo", "web"], False, 0),
    ],
)
def test_a_pod_with_an_unknown_field(place, validate, found, is_broken, count):
    """Other pods of the same file are read, as beside a pod with another error."""
    typo = manifest("typo").replace('"name": "main"', '"name": "main", "limits": {}')
    file = make_files(place, {"two.yaml": f"{manifest('shop')}\n---\n{typo}\n"}) / "two.yaml"
    contents = ManifestDirectories([str(place)], validate=validate).read()
    assert names(contents) == found
    assert contents.broken == ({str(file)} if is_broken else set())
    assert [problem.hint for problem in contents.problems] == ["it belongs under resources"] * count
    assert lost(contents, "typo", file) is False


def test_a_compose_project_in_place_of_a_manifest_loses_no_pod(place, manifests):
    assert names(manifests.read()) == ["web"]
    make_files(place, {"web.yaml": "services: {web: {image: a}}\n"})
    contents = manifests.read()
    (problem,) = contents.problems
    assert problem.message == "this is a compose project"
    assert not lost(contents, "web", place / "web.yaml")


# All directories have one budget.


def workload(name, replicas, containers=1):
    entries = ",".join(f"{{name: c{number}}}" for number in range(containers))
    spec = f"{{replicas: {replicas}, template: {{spec: {{containers: [{entries}]}}}}}}"
    return f"kind: Deployment\napiVersion: apps/v1\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def few(**most):
    return {**LIMITS, **{BudgetItem[name.upper()]: number for name, number in most.items()}}


def refused(contents):
    return [str(problem) for problem in contents.problems]


def test_a_bomb_is_refused_and_other_files_are_read(place):
    make_files(place.parent, {"second/a.yaml": manifest("shop")})
    manifests = ManifestDirectories([str(place), str(place.parent / "second")], few(pods=10))
    bomb = place / "a.yaml"
    bomb.write_text(workload("d", 100))
    for _ in range(2):
        contents = manifests.read()
        assert names(contents) == ["shop", "web"]
        assert contents.broken == {str(bomb)}
        why = "there are more than 10 pods; this is the limit for all manifests together"
        assert refused(contents) == [f"{bomb}: {why}"]


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (few(pods=10), workload("d", 11)),
        (few(containers=10), workload("d", 3, containers=4)),
        (few(values=30), "a: [" + "1," * 30 + "]"),
        (few(documents=5), "---\na: 1\n" * 6),
        (few(problems=5), "---\na: 1\n" * 6),
        (few(bytes=1024), "#" * 1025),
    ],
    ids=["pods", "containers", "values", "documents", "problems", "bytes"],
)
def test_a_refused_file_uses_no_budget(place, limits, text):
    make_files(place, {"a.yaml": text, "b.yaml": text + " "})
    contents = ManifestDirectories([str(place)], limits).read()
    assert names(contents) == ["web"]
    assert len(refused(contents)) == 2


def test_accepted_files_keep_their_share(place):
    make_files(place, {"web.yaml": workload("web", 8)})
    manifests = ManifestDirectories([str(place)], few(pods=10))
    first = manifests.read()
    make_files(place, {"a.yaml": workload("a", 3), "b.yaml": workload("b", 2)})
    contents = manifests.read()
    assert len(first.pods) == 8
    assert contents.broken in ({f"{place}/b.yaml"}, {f"{place}/a.yaml"})
    assert set(first.sources.values()) <= set(contents.sources.values())


def test_a_refused_file_is_read_again_when_the_budget_grows(place, monkeypatch):
    make_files(place, {"web.yaml": workload("web", 8)})
    manifests, read = ManifestDirectories([str(place)], few(pods=10)), []
    manifests.read()
    load_text = module.load_text
    monkeypatch.setattr(
        module,
        "load_text",
        lambda data, name, *rest, **options: (
            read.append(name) or load_text(data, name, *rest, **options)
        ),
    )
    make_files(place, {"shop.yaml": workload("shop", 5)})
    for _ in range(3):
        assert len(manifests.read().pods) == 8
    assert read == [f"{place}/shop.yaml"]
    make_files(place, {"web.yaml": workload("web", 5)})
    assert len(manifests.read().pods) == 10


def test_one_call_reads_few_files_above_the_limits(place, monkeypatch):
    """The others follow, so that no number of bombs blocks a round."""
    manifests, read = ManifestDirectories([str(place)], few(pods=10)), []
    load_text = module.load_text
    monkeypatch.setattr(
        module,
        "load_text",
        lambda data, name, *rest, **options: (
            read.append(name) or load_text(data, name, *rest, **options)
        ),
    )
    make_files(place, {f"{number:02}.yaml": workload("d", 100) for number in range(20)})
    # smaller files are read first
    make_files(place, {f"{name}.yaml": manifest(name) + "#" * 1000 for name in ("shop", "web")})
    counts, shown = [], []
    for _ in range(4):
        read.clear()
        contents = manifests.read()
        counts.append(len(read))
        shown.append((names(contents), len(contents.broken), contents.is_partial))
    assert counts == [8, 8, 6, 0]
    assert shown == [
        ([], 22, True),
        ([], 22, True),
        (["shop", "web"], 20, False),
        (["shop", "web"], 20, False),
    ]


def test_a_file_left_to_the_next_call_loses_no_pod(place):
    manifests = ManifestDirectories([str(place)], few(pods=10))
    make_files(place, {f"{number:02}.yaml": workload("d", 100) for number in range(20)})
    make_files(place, {"web.yaml": manifest("web") + "#" * 1000})
    contents = manifests.read()
    assert (names(contents), contents.is_partial) == ([], True)
    assert not lost(contents, "web", place / "web.yaml")


def test_the_number_of_problems_is_limited(place):
    make_files(place, {"a.yaml": "---\na: 1\n" * 300})
    problems = ManifestDirectories([str(place)]).read().problems
    assert len(problems) == PROBLEMS_SHOWN + 1
    assert str(problems[-1]) == f"there are {300 - PROBLEMS_SHOWN} more problems"

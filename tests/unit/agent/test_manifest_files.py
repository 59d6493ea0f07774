"""The manifest directories: what they ask for, and what a broken file must not do."""

import os
from pathlib import Path

import pytest

from podslice.agent import manifest_files as manifests_module
from podslice.agent.manifest_files import ManifestDirectories as Stepwise
from podslice.errors import PROBLEMS_SHOWN, Severity
from podslice.inputs.budget import LIMITS, BudgetItem
from podslice.model.pod import default_uid
from podslice.pausable import finish
from tests.unit.builders import besteffort, make_files, manifest


class ManifestDirectories(Stepwise):
    """Read at once."""

    def read(self, owners=None):
        return finish(super().read(owners))


@pytest.fixture
def place(tmp_path):
    return make_files(tmp_path, {"manifests/web.yaml": manifest("web")}) / "manifests"


@pytest.fixture
def manifests(place):
    return ManifestDirectories([str(place)])


def names(wishes):
    return [wish.pod.name for wish in wishes.pods]


def applied(name):
    """A pod as its record tells it."""
    return besteffort(name, uid=default_uid("default", name))


def lost(wishes, name, file):
    return wishes.has_lost(applied(name), str(file))


def two(first, second):
    return f"{manifest(first)}\n---\n{manifest(second)}\n"


def test_pods_come_with_their_files(manifests, place):
    make_files(place, {"both.yml": two("shop", "cache"), "a.json": manifest("batch")})
    wishes = manifests.read()
    assert [(wish.pod.key, wish.source) for wish in wishes.pods] == [
        ("default/batch", f"{place}/a.json"),
        ("default/cache", f"{place}/both.yml"),
        ("default/shop", f"{place}/both.yml"),
        ("default/web", f"{place}/web.yaml"),
    ]
    assert wishes.pods[2].pod.where == f"{place}/both.yml[0]"
    assert wishes.sources == {wish.pod.uid: wish.source for wish in wishes.pods}
    assert (wishes.problems, wishes.broken, wishes.unread) == ((), frozenset(), frozenset())


def test_what_is_no_manifest_is_passed_over(manifests, place):
    make_files(place, {".hidden.yaml": "{", "web.yaml~": "{", "README": "{", "below/a.yaml": "{"})
    wishes = manifests.read()
    assert (names(wishes), wishes.problems) == (["web"], ())


def test_a_directory_that_is_not_there_asks_for_nothing(place):
    manifests = ManifestDirectories([f"{place}/nowhere/", str(place)])
    wishes = manifests.read()
    assert (names(wishes), wishes.problems, wishes.unread) == (["web"], (), frozenset())
    assert lost(wishes, "other", f"{place}/nowhere/other.yaml")
    make_files(place, {"nowhere/other.yaml": manifest("other")})
    wishes = manifests.read()
    assert names(wishes) == ["other", "web"]
    assert wishes.pods[0].source == f"{place}/nowhere/other.yaml"


def test_a_directory_that_is_named_twice_is_read_once(place):
    assert names(ManifestDirectories([str(place), f"{place}/"]).read()) == ["web"]


def test_a_directory_that_cannot_be_read_loses_no_pod(tmp_path, place):
    file = tmp_path / "file"
    file.write_text("")
    wishes = ManifestDirectories([str(file), str(place)]).read()
    assert names(wishes) == ["web"]
    assert wishes.unread == {str(file)}
    assert not lost(wishes, "other", file / "other.yaml")
    (problem,) = wishes.problems
    assert str(problem) == f"{file}: not a directory; pods applied from it remain unchanged"


def test_too_many_manifests_lose_no_pod(manifests, place, monkeypatch):
    monkeypatch.setattr(manifests_module, "FILES_MAX", 1)
    make_files(place, {"shop.yaml": manifest("shop")})
    wishes = manifests.read()
    assert (names(wishes), wishes.unread) == ([], {str(place)})
    assert not lost(wishes, "web", place / "web.yaml")
    assert "more than 1 manifests" in str(wishes.problems[0])


def test_a_pod_is_lost_with_its_file(manifests, place):
    assert not lost(manifests.read(), "web", place / "web.yaml")
    (place / "web.yaml").unlink()
    wishes = manifests.read()
    assert lost(wishes, "web", place / "web.yaml")
    assert (wishes.pods, wishes.problems) == ((), ())


def test_a_pod_is_lost_when_its_file_has_another(manifests, place):
    manifests.read()
    make_files(place, {"web.yaml": manifest("shop")})
    wishes = manifests.read()
    assert (names(wishes), lost(wishes, "web", place / "web.yaml")) == (["shop"], True)


def test_a_pod_of_another_uid_is_another_pod(manifests, place):
    text = manifest("web").replace('"name": "web"', '"name": "web", "uid": "0a1b-2c"')
    make_files(place, {"web.yaml": text})
    wishes = manifests.read()
    assert [wish.pod.uid for wish in wishes.pods] == ["0a1b-2c"]
    assert lost(wishes, "web", place / "web.yaml")


def test_a_pod_that_moves_to_another_file_stays(manifests, place):
    manifests.read()
    (place / "web.yaml").rename(place / "moved.yaml")
    wishes = manifests.read()
    assert not lost(wishes, "web", place / "web.yaml")
    assert list(wishes.sources.values()) == [f"{place}/moved.yaml"]


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
    wishes = manifests.read()
    assert "other" in names(wishes)
    assert "web" not in names(wishes)
    assert wishes.broken == {f"{place}/web.yaml"}
    assert not lost(wishes, "web", place / "web.yaml")
    assert lost(wishes, "gone", place / "other.yaml")
    assert any(each.severity is Severity.ERROR for each in wishes.problems)
    assert all(each.where.startswith(f"{place}/web.yaml") for each in wishes.problems)
    make_files(place, {"web.yaml": manifest("web")})
    wishes = manifests.read()
    assert (names(wishes), wishes.problems, wishes.broken) == (["other", "web"], (), frozenset())


def test_what_is_right_in_a_broken_file_is_asked_for(manifests, place):
    make_files(place, {"both.yaml": two("shop", "UPPER")})
    wishes = manifests.read()
    assert names(wishes) == ["shop", "web"]
    assert wishes.broken == {f"{place}/both.yaml"}


def test_a_warning_breaks_nothing(manifests, place):
    text = '{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}'
    make_files(place, {"web.yaml": f"{manifest('web')}\n---\n{text}\n"})
    wishes = manifests.read()
    assert (names(wishes), wishes.broken) == (["web"], frozenset())
    assert [each.severity for each in wishes.problems] == [Severity.WARNING]


def test_of_two_files_with_one_pod_the_first_wins(manifests, place):
    make_files(place, {"z.yaml": two("web", "zoo"), "a.yaml": manifest("web", {"cpu": "1"})})
    wishes = manifests.read()
    assert [(wish.pod.name, Path(wish.source).name) for wish in wishes.pods] == [
        ("web", "a.yaml"),
        ("zoo", "z.yaml"),
    ]
    assert wishes.broken == {f"{place}/web.yaml", f"{place}/z.yaml"}
    why = f"the name default/web is used by a pod of {place}/a.yaml"
    assert [str(problem) for problem in wishes.problems] == [
        f"{place}/web.yaml: {why}; remove one of the two",
        f"{place}/z.yaml[0]: {why}; remove one of the two",
    ]


def test_no_two_pods_have_one_uid(place, manifests):
    text = manifest("zoo").replace('"name": "zoo"', '"name": "zoo", "uid": "0a1b-2c"', 1)
    make_files(place, {"y.yaml": text, "z.yaml": text.replace("zoo", "zap")})
    wishes = manifests.read()
    assert names(wishes) == ["web", "zoo"]
    assert "z.yaml: the uid 0a1b-2c is used by a pod of" in str(wishes.problems[0])


def owner_of(wishes, name):
    return {wish.pod.name: Path(wish.source).name for wish in wishes.pods}.get(name)


def test_an_applied_pod_stays_with_its_file(manifests, place):
    """A new file does not take the pod over because its name sorts first."""
    make_files(place, {"a.yaml": manifest("web", {"cpu": "1"})})
    wishes = manifests.read({"default/web": f"{place}/web.yaml"})
    assert owner_of(wishes, "web") == "web.yaml"
    why = f"the name default/web is used by a pod of {place}/web.yaml"
    assert list(map(str, wishes.problems)) == [f"{place}/a.yaml: {why}; remove one of the two"]
    assert wishes.broken == {f"{place}/a.yaml"}


def test_an_applied_pod_keeps_its_uid(manifests, place):
    text = manifest("zoo").replace('"name": "zoo"', '"name": "zoo", "uid": "0a1b-2c"', 1)
    make_files(place, {"z.yaml": text, "a.yaml": text.replace('"zoo"', '"zap"')})
    wishes = manifests.read({"default/zoo": f"{place}/z.yaml", "0a1b-2c": f"{place}/z.yaml"})
    assert names(wishes) == ["web", "zoo"]
    assert "a.yaml: the uid 0a1b-2c is used by a pod of" in str(wishes.problems[0])


@pytest.mark.parametrize("text", ["{", manifest("UPPER")])
def test_an_applied_pod_stays_with_a_file_that_became_invalid(manifests, place, text):
    """The file may still have the pod."""
    make_files(place, {"web.yaml": text, "a.yaml": manifest("web", {"cpu": "1"})})
    wishes = manifests.read({"default/web": f"{place}/web.yaml"})
    assert owner_of(wishes, "web") is None
    assert not lost(wishes, "web", place / "web.yaml")
    assert any("the name default/web is used" in str(each) for each in wishes.problems)


@pytest.mark.parametrize("text", [manifest("other"), None])
def test_an_applied_pod_moves_to_the_file_that_has_it_now(manifests, place, text):
    make_files(place, {"a.yaml": manifest("web", {"cpu": "1"})})
    if text is None:
        (place / "web.yaml").unlink()
    else:
        make_files(place, {"web.yaml": text})
    wishes = manifests.read({"default/web": f"{place}/web.yaml"})
    assert (owner_of(wishes, "web"), wishes.problems) == ("a.yaml", ())


def test_directories_count_in_their_order(place):
    make_files(place.parent, {"second/a.yaml": manifest("web")})
    wishes = ManifestDirectories([str(place), str(place.parent / "second")]).read()
    assert [wish.source for wish in wishes.pods] == [f"{place}/web.yaml"]


def test_pods_without_a_name_are_not_the_same(manifests, place):
    """What is wrong with them is told, and no more."""
    text = manifest("web").replace('"name": "web"', '"labels": {}')
    make_files(place, {"web.yaml": text, "x.yaml": text})
    assert all("a name is required" in str(each) for each in manifests.read().problems)


def test_a_file_that_has_not_changed_is_not_read_again(manifests, place, monkeypatch):
    make_files(place, {"broken.yaml": "{", "shop.yaml": manifest("shop")})
    first, read = manifests.read(), []
    load_text = manifests_module.load_text
    monkeypatch.setattr(
        manifests_module,
        "load_text",
        lambda data, name, budget: read.append(name) or load_text(data, name, budget),
    )
    second = manifests.read()
    assert (second, read) == (first, [])
    assert all(a.pod is b.pod for a, b in zip(first.pods, second.pods, strict=True))
    make_files(place, {"shop.yaml": manifest("shop", {"cpu": "1"})})
    assert manifests.read().pods[0].pod.containers[0].resources.requests == {"cpu": 1000}
    assert read == [f"{place}/shop.yaml"]


def test_a_file_of_another_in_the_same_place_is_read(manifests, place):
    """A rename keeps size and time of the new file."""
    status = (place / "web.yaml").stat()
    manifests.read()
    new = place / "new"
    new.write_text(manifest("wob"))
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(place / "web.yaml")
    assert names(manifests.read()) == ["wob"]


def test_what_could_not_be_read_is_tried_again(manifests, place, monkeypatch):
    manifests.read()
    make_files(place, {"web.yaml": manifest("web", {"cpu": "1"})})

    def fail(*_, **__):
        raise OSError(23, "Too many open files in system")

    with monkeypatch.context() as patch:
        patch.setattr("podslice.inputs.source.os.open", fail)
        wishes = manifests.read()
    assert wishes.broken == {f"{place}/web.yaml"}
    assert str(wishes.problems[0]) == f"{place}/web.yaml: too many open files in system"
    assert names(manifests.read()) == ["web"]


def test_a_file_that_goes_while_it_is_read_is_gone(manifests, place, monkeypatch):
    def gone(path, _):
        Path(path).unlink()
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(manifests_module, "read_manifest", gone)
    wishes = manifests.read()
    assert wishes.problems == ()
    assert lost(wishes, "web", place / "web.yaml")


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
def test_what_is_no_file_is_told_and_holds_nobody_up(manifests, place, make, message):
    file = place / "web.yaml"
    file.unlink()
    make(file)
    for _ in range(2):
        wishes = manifests.read()
        assert [str(each) for each in wishes.problems] == [f"{file}: {message}"]
        assert not lost(wishes, "web", file)
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


def test_a_link_to_a_manifest_is_one(manifests, place):
    """As configuration management and mounted ConfigMaps make them."""
    make_files(place.parent, {"v1/web": manifest("web"), "v2/web": manifest("web", {"cpu": "1"})})
    (place / "web.yaml").unlink()
    (place / "web.yaml").symlink_to("../v1/web")
    assert names(manifests.read()) == ["web"]
    (place / "new").symlink_to("../v2/web")
    (place / "new").replace(place / "web.yaml")
    (wish,) = manifests.read().pods
    assert wish.pod.containers[0].resources.requests == {"cpu": 1000}


# All directories have one budget.


def workload(name, replicas, containers=1):
    entries = ",".join(f"{{name: c{number}}}" for number in range(containers))
    spec = f"{{replicas: {replicas}, template: {{spec: {{containers: [{entries}]}}}}}}"
    return f"kind: Deployment\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def few(**most):
    return {**LIMITS, **{BudgetItem[name.upper()]: number for name, number in most.items()}}


def refused(wishes):
    return [str(problem) for problem in wishes.problems]


def test_a_bomb_is_refused_and_the_others_are_asked_for(place):
    make_files(place.parent, {"second/a.yaml": manifest("shop")})
    manifests = ManifestDirectories([str(place), str(place.parent / "second")], few(pods=10))
    bomb = place / "a.yaml"
    bomb.write_text(workload("d", 100))
    for _ in range(2):
        wishes = manifests.read()
        assert names(wishes) == ["shop", "web"]
        assert wishes.broken == {str(bomb)}
        why = "there are more than 10 pods; this is the limit for all manifests together"
        assert refused(wishes) == [f"{bomb}: {why}"]


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
def test_what_a_refused_file_would_take_is_left_for_the_others(place, limits, text):
    make_files(place, {"a.yaml": text, "b.yaml": text + " "})
    wishes = ManifestDirectories([str(place)], limits).read()
    assert names(wishes) == ["web"]
    assert len(refused(wishes)) == 2


def test_files_that_were_taken_keep_their_part(place):
    make_files(place, {"web.yaml": workload("web", 8)})
    manifests = ManifestDirectories([str(place)], few(pods=10))
    first = manifests.read()
    make_files(place, {"a.yaml": workload("a", 3), "b.yaml": workload("b", 2)})
    wishes = manifests.read()
    assert len(first.pods) == 8
    assert wishes.broken in ({f"{place}/b.yaml"}, {f"{place}/a.yaml"})
    assert {wish.source for wish in first.pods} <= {wish.source for wish in wishes.pods}


def test_a_refused_file_is_read_again_once_there_is_room(place, monkeypatch):
    make_files(place, {"web.yaml": workload("web", 8)})
    manifests, read = ManifestDirectories([str(place)], few(pods=10)), []
    manifests.read()
    load_text = manifests_module.load_text
    monkeypatch.setattr(
        manifests_module,
        "load_text",
        lambda data, name, budget: read.append(name) or load_text(data, name, budget),
    )
    make_files(place, {"shop.yaml": workload("shop", 5)})
    for _ in range(3):
        assert len(manifests.read().pods) == 8
    assert read == [f"{place}/shop.yaml"]
    make_files(place, {"web.yaml": workload("web", 5)})
    assert len(manifests.read().pods) == 10


def test_one_look_reads_few_files_that_do_not_fit(place, monkeypatch):
    """The others follow, so that no number of bombs holds up a round."""
    manifests, read = ManifestDirectories([str(place)], few(pods=10)), []
    load_text = manifests_module.load_text
    monkeypatch.setattr(
        manifests_module,
        "load_text",
        lambda data, name, budget: read.append(name) or load_text(data, name, budget),
    )
    make_files(place, {f"{number:02}.yaml": workload("d", 100) for number in range(20)})
    make_files(place, {"shop.yaml": manifest("shop") + "#" * 1000})
    counts, shown = [], []
    for _ in range(4):
        read.clear()
        wishes = manifests.read()
        counts.append(len(read))
        shown.append((names(wishes), len(wishes.broken), wishes.is_partial))
    assert counts == [8, 8, 6, 0]
    assert shown == [
        ([], 22, True),
        ([], 22, True),
        (["shop", "web"], 20, False),
        (["shop", "web"], 20, False),
    ]


def test_a_file_that_is_left_to_the_next_look_loses_no_pod(place):
    manifests = ManifestDirectories([str(place)], few(pods=10))
    make_files(place, {f"{number:02}.yaml": workload("d", 100) for number in range(20)})
    make_files(place, {"web.yaml": manifest("web") + "#" * 1000})
    wishes = manifests.read()
    assert (names(wishes), wishes.is_partial) == ([], True)
    assert not lost(wishes, "web", place / "web.yaml")


def test_problems_are_told_up_to_a_number(place):
    make_files(place, {"a.yaml": "---\na: 1\n" * 300})
    problems = ManifestDirectories([str(place)]).read().problems
    assert len(problems) == PROBLEMS_SHOWN + 1
    assert str(problems[-1]) == f"there are {300 - PROBLEMS_SHOWN} more problems"

"""Arguments that several verbs share: names of pods, and the pods that a verb shows."""

import pytest

from podslice.cli.pods import PodFilter, key_of, pod_filter, pods_named
from podslice.errors import InputError


@pytest.mark.parametrize(
    ("name", "namespace", "key"),
    [
        ("web", None, "default/web"),
        ("web", "shop", "shop/web"),
        ("shop/web", None, "shop/web"),
        ("shop/web", "other", "shop/web"),
        ("pod/web", None, "default/web"),
        ("pods/web", "shop", "shop/web"),
        ("po/web", None, "default/web"),
        ("pod/shop/web", None, "shop/web"),
        ("pod/pod/web", None, "pod/web"),
        ("deploy/web", "shop", "shop/web"),
        ("job/shop/web", None, "shop/web"),
        ("sts/web", None, "sts/web"),
    ],
)
def test_the_key_of_a_name(name, namespace, key):
    assert key_of(name, namespace) == key


@pytest.mark.parametrize(
    ("names", "namespace", "selected"),
    [
        ([], None, ["default/web", "shop/web", "shop-2/web"]),
        ([], "shop", ["shop/web"]),
        (["web"], None, ["default/web"]),
        (["web"], "shop", ["shop/web"]),
        (["shop-2/web", "pod/web"], "shop", ["shop/web", "shop-2/web"]),
    ],
)
def test_a_filter_selects(names, namespace, selected):
    pods = ["default/web", "shop/web", "shop-2/web"]
    assert [key for key in pods if pod_filter(names, namespace).selects(key)] == selected


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("web", ["default/web"]),
        ("shop", ["default/shop-2", "default/shop-10"]),
        ("deployment/shop", ["default/shop-2", "default/shop-10"]),
        ("ds/web", ["default/web"]),
        ("job/web", []),
        ("job/shop", ["job/shop-0"]),
        ("service/web", []),
    ],
)
def test_the_pods_of_a_name(name, found):
    known = {"default/web", "default/shop-10", "default/shop-2", "default/shop-x", "job/shop-0"}
    assert pods_named(key_of(name, None), known) == found


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("shop/wbe", "did you mean shop/web?"),
        ("default/web", "did you mean shop/web?"),
        ("default/queue", "to list pods: podslice status"),
    ],
)
def test_an_unknown_pod_gets_the_most_similar_name(key, hint):
    with pytest.raises(InputError) as raised:
        PodFilter(keys=("shop/web", key)).resolve({"shop/web", "shop/database"})
    assert str(raised.value) == f"{key}: no such pod; {hint}"

"""Fuzz targets: documents of a kubelet, and the record of pod levels."""

from __future__ import annotations

from pathlib import Path

from podslice.errors import InputError
from podslice.features.kubelet.api import read_kubeconfig
from podslice.features.kubelet.config import read_settings
from podslice.features.kubelet.levels import LevelRecord
from podslice.features.kubelet.model import KubeletSettings
from podslice.features.kubelet.pods import parse_pod_list, read_pod_list
from podslice.features.kubelet.policy import plan_levels
from podslice.features.kubelet.values import expect_node
from podslice.model.config import Config
from podslice.model.unit import is_unit_name
from tests.fuzz.target import (
    FIELDS,
    HOSTILE,
    JSON,
    NODE,
    PODS_MAX,
    QUANTITIES,
    YAML,
    Target,
    check_problems,
    scratch,
)

CORPUS = Path(__file__).parent / "corpus"


def run_kubelet_config(data: bytes) -> None:
    """Read the configuration of a kubelet."""
    try:
        settings = read_settings(data, "config.yaml")
    except InputError as error:
        check_problems(error.problems)
    else:
        assert expect_node((), NODE, settings).root.endswith("kubepods.slice")


def run_kubeconfig(data: bytes) -> None:
    """Read a kubeconfig, whose files are the kubeconfig itself."""
    path = scratch() / "kubeconfig"
    path.write_bytes(data)
    try:
        token = read_kubeconfig(path).token
    except InputError as error:
        check_problems(error.problems)
    else:
        assert not token or token.isprintable()


def run_pod_levels(data: bytes) -> None:
    """Read the pods of a kubelet as its agent does, where no pod affects another, and plan them."""
    settings = KubeletSettings(config=Config(), version=(1, 33))
    try:
        pods = parse_pod_list(data, "pods.json", keeps_invalid=True)
    except InputError as error:
        check_problems(error.problems)
    else:
        plan = plan_levels(pods[:PODS_MAX], {}, {}, NODE, settings)
        assert not plan.changes
        assert all(each.message and each.message.isprintable() for each in plan.left)


def run_kubelet_pods(data: bytes) -> None:
    """Read the pods of a kubelet with their status, and compute their units."""
    try:
        pods = read_pod_list(["-"], lambda: data)
    except InputError as error:
        check_problems(error.problems)
        return
    expected = expect_node(pods[:PODS_MAX], NODE, KubeletSettings(config=Config()))
    assert all(is_unit_name(unit.name) for unit in expected.units)
    assert all(found.message.isprintable() for found in expected.findings)


def run_level_record(data: bytes) -> None:
    """Read a damaged record of the values on slices."""
    path = scratch() / "levels/pod-levels.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    assert isinstance(LevelRecord(path.parent).read(), dict)


TARGETS = (
    Target(
        home=CORPUS,
        name="kubelet-config",
        run=run_kubelet_config,
        tokens=(*YAML, *JSON, *QUANTITIES, *HOSTILE, b"true", b"100ms", b"10%"),
        calls=2000,
    ),
    Target(
        home=CORPUS,
        name="kubeconfig",
        run=run_kubeconfig,
        tokens=(*YAML, *JSON, *HOSTILE, b"-data", b"tokenFile: kubeconfig", b"Zm9v"),
        calls=2000,
    ),
    Target(
        home=CORPUS,
        name="kubelet-pods",
        run=run_kubelet_pods,
        tokens=(*JSON, *QUANTITIES, *HOSTILE, *FIELDS, b"status", b"containerd://"),
        calls=3000,
    ),
    Target(
        home=CORPUS,
        name="pod-levels",
        run=run_pod_levels,
        seeds=("tests/unit/features/kubelet/corpus/kubelet-pods/*",),
        tokens=(*JSON, *QUANTITIES, *HOSTILE, *FIELDS, b"podslice.io/resources", b"{"),
        calls=3000,
    ),
    Target(
        home=CORPUS,
        name="level-record",
        run=run_level_record,
        seeds=("tests/fuzz/corpus/record/*",),
        tokens=(*JSON, *QUANTITIES, *FIELDS),
        calls=2000,
    ),
)

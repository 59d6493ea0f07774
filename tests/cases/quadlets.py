"""The cases of quadlets: their settings, and what the generator makes of them."""

import tomllib
from pathlib import Path

from podslice.features.quadlet.generate import generate
from podslice.features.quadlet.result import Options
from podslice.features.quadlet.workloads import read_workloads
from podslice.inputs.manifest.load import Extent, load_pods
from podslice.model.config import Config, Rules
from podslice.model.node import Node
from podslice.model.unit import SYSTEM, user_manager
from podslice.policy.decide import decide
from tests.cases.rows import to_amounts
from tests.configuration import load_config

QUADLETS = Path(__file__).parent / "quadlet"
CASES = sorted(path.name for path in QUADLETS.iterdir() if path.is_dir())
NODE = Node(capacity=to_amounts("cpu=8,memory=32Gi"))
USER = user_manager(1000, {"XDG_RUNTIME_DIR": "/run/user/1000", "HOME": "/home/ada"})


def settings_of(path):
    file = path / "case.toml"
    return tomllib.loads(file.read_text()) if file.exists() else {}


def options_of(settings, config):
    return Options(
        has_init_phase=config.rules is not Rules.KUBERNETES,
        manager=USER if settings.get("user") else SYSTEM,
        systemd_version=settings.get("systemd", 257),
        podman_version=tuple(settings.get("podman", (5, 4))),
        is_kept=settings.get("kept", False),
    )


def load(path, ignored=()):
    loaded = load_pods(["pods.yaml"], stdin=lambda: b"", extent=Extent.WORKLOADS)
    workloads = read_workloads(loaded, ignored=frozenset(ignored))
    return loaded, workloads, [*loaded.all_problems, *workloads.problems]


def made_of_text(text, **options):
    """The quadlets of the only pod in a text without problems."""
    loaded = load_pods(["-"], stdin=text.encode, extent=Extent.WORKLOADS)
    workloads = read_workloads(loaded)
    assert not [*loaded.all_problems, *workloads.problems]
    (pod,) = loaded.pods
    decided = decide(pod, NODE, Config())
    return generate(decided, workloads.workloads[pod.key], Options(**options))


def made_of(path):
    """The problems of a case, and the quadlets of its pods if there is no error."""
    settings = settings_of(path)
    config = load_config(settings.get("config", {}))
    options = options_of(settings, config)
    loaded, workloads, problems = load(path, settings.get("ignore", ()))
    problems += [options.problem] if options.problem else []
    if any(each.severity == "error" for each in problems):
        return problems, []
    decided = [decide(pod, NODE, config) for pod in loaded.pods]
    return problems, [
        generate(each, workloads.workloads[each.pod.key], options) for each in decided
    ]

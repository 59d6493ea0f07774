"""A configuration that became invalid, for tests of features; see transcripts/configuration.txt."""

import pytest

from podslice.store.store import Store
from tests.unit.builders import make_files, manifest
from tests.unit.features.run.test_phase import SHOP

VALID = 'cgroup-root = "/elsewhere"\nkube-reserved = "memory=2Gi"\ncpu-weight-mapping = "oci"\n'
INVALID = f'{VALID}rules = "own"\neviction-hrad = ""\nfoo = 1\n'
WEB = ("cpu=500m,memory=256Mi", "memory=512Mi")


@pytest.fixture
def configure(here):
    def write(text):
        make_files(here, {"etc/podslice/podslice.toml": text})

    return write


@pytest.fixture
def applied(memory, podslice, files, configure):
    """Two pods below another control group, and a configuration that became invalid since."""
    files({"web.yaml": manifest("web", *map(amounts, WEB)), "shop.yaml": SHOP})
    configure(VALID)
    assert podslice("apply", "-f", "web.yaml", "-f", "shop.yaml").code == 0
    configure(INVALID)
    return memory


def amounts(text):
    return dict(part.split("=") for part in text.split(","))


def test_flags_are_not_recorded(memory, podslice, files, here):
    files({"web.yaml": manifest("web")})
    assert podslice("apply", "-f", "web.yaml", "--set=cpu-weight-mapping=oci").code == 0
    assert Store(here / "run-False").options() == {}

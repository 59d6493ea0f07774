"""`phase`: the properties that apply now and later, and setting the phase."""

import pytest

from tests.cases.tables import cases

SHOP = """\
apiVersion: v1
kind: Pod
metadata: {name: shop, uid: u-1}
spec:
  resources: {limits: {memory: 64Mi}}
  initContainers:
  - {name: fetch, resources: {requests: {memory: 1Mi}}}
  - {name: build}
  containers:
  - {name: app, resources: {requests: {cpu: 250m, memory: 8Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  containers:
  - {name: app}
"""


@pytest.fixture
def shop(memory, podslice, files):
    files({"shop.yaml": SHOP})
    assert podslice("apply", "-f", "shop.yaml").code == 0


@cases
def test_what_is_printed(case, expect):
    expect(case)

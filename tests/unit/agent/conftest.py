"""No kubelet runs, whatever the machine of the tests has."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_kubelet(monkeypatch):
    monkeypatch.setattr("podslice.reconcile.converge.process_named", lambda _: None)

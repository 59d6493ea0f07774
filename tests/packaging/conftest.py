from __future__ import annotations

import pytest

from tests.lab import fixtures
from tests.packaging.builds import Packages


@pytest.fixture(scope="session")
def packages():
    """The packages of this checkout."""
    fixtures.need_lab()
    return Packages()

"""Pods as `status POD` and `top` show them."""

from tests.unit.cli.verbs.test_status_pod import events, shop  # noqa: F401 - fixtures
from tests.unit.cli.verbs.test_top import eyes, seen  # noqa: F401 - fixtures

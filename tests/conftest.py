"""The option that rewrites golden texts."""

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--update-cases",
        action="store_true",
        help="Rewrite the golden texts of cases; read the difference before you keep it.",
    )


@pytest.fixture
def update_cases(request):
    return request.config.getoption("--update-cases", default=False)

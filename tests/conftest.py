"""The option that rewrites golden texts, and a collection of tests without that of garbage."""

import gc

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Leave modules and thousands of tests, which last until the end, out of garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser):
    parser.addoption(
        "--update-cases",
        action="store_true",
        help="Rewrite the golden texts of cases; read the difference before you keep it.",
    )


@pytest.fixture
def update_cases(request):
    return request.config.getoption("--update-cases", default=False)

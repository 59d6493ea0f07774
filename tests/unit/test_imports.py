"""Imports without what the imported can do without."""

import os
import sys
from importlib import import_module

import pytest

from podslice.imports import quick_models, without


def test_a_library_is_hidden_while_something_is_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with without("colorsys"), pytest.raises(ImportError):
        import_module("colorsys")
    found = import_module("colorsys")
    with without("colorsys"):
        assert sys.modules["colorsys"] is found, "it is used"


def test_what_is_set_for_pydantic_is_unset_again(monkeypatch):
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "mine")
    monkeypatch.delenv("PYDANTIC_SKIP_VALIDATING_CORE_SCHEMAS", raising=False)
    with quick_models():
        assert os.environ["PYDANTIC_DISABLE_PLUGINS"] == "__all__"
        assert os.environ["PYDANTIC_SKIP_VALIDATING_CORE_SCHEMAS"] == "1"
    assert os.environ["PYDANTIC_DISABLE_PLUGINS"] == "mine"
    assert "PYDANTIC_SKIP_VALIDATING_CORE_SCHEMAS" not in os.environ

"""Imports without what the imported can do without."""

import hashlib
import os
import sys
from importlib import import_module

import pytest

from podslice.imports import (
    modules_of,
    never_import,
    never_import_openssl,
    never_search_packages,
    quick_models,
    without,
)


def test_a_library_is_hidden_while_something_is_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with without("colorsys"), pytest.raises(ImportError):
        import_module("colorsys")
    found = import_module("colorsys")
    with without("colorsys"):
        assert sys.modules["colorsys"] is found, "it is used"


@pytest.mark.parametrize("before", [None, "mine"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYDANTIC_SKIP_VALIDATING_CORE_SCHEMAS", "1"),
        ("PYTHONTZPATH", "/usr/share/zoneinfo"),
    ],
)
def test_what_is_set_for_pydantic_is_unset_again(monkeypatch, name, value, before):
    monkeypatch.setenv(name, before) if before else monkeypatch.delenv(name, raising=False)
    with quick_models():
        assert os.environ[name] == (before or value)
    assert os.environ.get(name) == before


def test_no_package_seems_to_be_installed(monkeypatch):
    name = "importlib.metadata"
    monkeypatch.delitem(sys.modules, name, raising=False)
    never_search_packages()
    found = import_module(name)
    assert (found.entry_points(group="pydantic"), found.distributions()) == ((), ())
    with pytest.raises(AttributeError):
        found.__path__  # noqa: B018 (the import system asks)
    assert sys.modules[name] is found
    assert found.version("pydantic") == import_module(name).version("pydantic")
    real = sys.modules[name]
    assert real is not found, "another function is used"
    never_search_packages()
    assert sys.modules[name] is real


def test_a_library_is_never_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    never_import("colorsys")
    with pytest.raises(ImportError):
        import_module("colorsys")
    monkeypatch.setitem(sys.modules, "colorsys", pytest)
    never_import("colorsys")
    assert sys.modules["colorsys"] is pytest, "it is used"


def test_modules_of_a_package_are_imported_without_it(tmp_path, monkeypatch):
    package = tmp_path / "heavy"
    package.mkdir()
    (package / "__init__.py").write_text("from heavy import part, rest\n")
    (package / "part.py").write_text("from heavy import other\nVALUE = other.VALUE\n")
    (package / "other.py").write_text("VALUE = 1\n")
    (package / "rest.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with modules_of("heavy"):
        part = import_module("heavy.part")
    assert part.VALUE == 1
    assert not {"heavy", "heavy.rest"} & sys.modules.keys()
    assert import_module("heavy").part is part, "the package can be imported later"
    with modules_of("heavy"):
        assert "rest" in vars(sys.modules["heavy"]), "it is used"


def test_a_missing_package_is_reported_as_such():
    with pytest.raises(ModuleNotFoundError), modules_of("no_such_package"):
        import_module("no_such_package.part")


@pytest.fixture
def without_hashes(monkeypatch):
    """Nothing of OpenSSL is imported yet, as at the start of a command."""
    for name in ("ssl", "hashlib", "_hashlib"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        # removed at the end, whatever the test has put there
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]


@pytest.mark.usefixtures("without_hashes")
def test_hashes_without_openssl_are_the_same():
    never_import_openssl()
    own = import_module("hashlib")
    assert own is not hashlib
    for name in ("md5", "sha1", "sha256", "sha512", "blake2b", "sha3_256"):
        assert own.new(name, b"pod").digest() == hashlib.new(name, b"pod").digest()
    for name in ("ssl", "_hashlib"):
        with pytest.raises(ImportError):
            import_module(name)


@pytest.mark.usefixtures("without_hashes")
def test_openssl_is_used_where_python_has_no_hashes_of_its_own(monkeypatch):
    monkeypatch.setattr(sys, "builtin_module_names", ())
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    never_import_openssl()
    assert "_hashlib" not in sys.modules

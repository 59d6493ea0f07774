"""Credentials from kubeconfigs."""

import base64
import json

import pytest

from podslice.errors import InputError
from podslice.features.kubelet.api import read_kubeconfig
from tests.cases.tables import cases

WORD = "abc"


@pytest.fixture
def read(tmp_path):
    """Read a kubeconfig with this user and cluster."""

    def call(user=None, cluster=None, **more):
        document = {
            "kind": "Config",
            "current-context": "lab",
            "contexts": [
                {"name": "other", "context": {"cluster": "x", "user": "x"}},
                {"name": "lab", "context": {"cluster": "c", "user": "u"}},
            ],
            "users": [{"name": "u", "user": user or {}}],
            "clusters": [{"name": "c", "cluster": cluster or {}}],
            **more,
        }
        path = tmp_path / "config"
        path.write_text(json.dumps(document))
        return read_kubeconfig(path)

    return call


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def pem(text):
    return f"-----BEGIN {text}-----"


def test_data_in_the_file(read):
    user = {
        "client-certificate-data": encoded(pem("C")),
        "client-key-data": encoded(pem("K")),
        "token": "t",
    }
    found = read(user, {"certificate-authority-data": encoded(pem("A"))})
    certificates = (found.certificate, found.key, found.authority)
    assert (*certificates, found.token) == (pem("C"), pem("K"), pem("A"), "t")
    assert pem("K") not in repr(found)


def test_other_files_are_relative_to_the_kubeconfig(read, tmp_path):
    for name in ("c.pem", "k.pem", "a.pem"):
        (tmp_path / name).write_text(pem(name))
    (tmp_path / "token").write_text(f"{WORD}\n")
    user = {"client-certificate": "c.pem", "client-key": str(tmp_path / "k.pem")}
    found = read({**user, "tokenFile": "token", "token": "old"}, {"certificate-authority": "a.pem"})
    certificates = (found.certificate, found.key, found.authority)
    assert certificates == (pem("c.pem"), pem("k.pem"), pem("a.pem"))
    assert found.token == WORD


@pytest.mark.parametrize("user", [{}, {"token": "", "client-key-data": "", "client-key": ""}])
def test_a_user_without_credentials(read, user):
    found = read(user)
    assert (found.certificate, found.key, found.authority, found.token) == ("", "", "", "")


def test_a_file_of_credentials_without_any(read, tmp_path):
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InputError, match="empty: there is no token in it"):
        read({"tokenFile": "empty", "token": "old"})
    with pytest.raises(InputError, match="empty: client-certificate is not PEM"):
        read({"client-certificate": "empty"})
    # without any, those of the host would be trusted
    with pytest.raises(InputError, match="empty: certificate-authority is not PEM"):
        read(cluster={"certificate-authority": "empty"})


@cases
def test_a_user_that_cannot_be_used(read, user, error):
    with pytest.raises(InputError) as found:
        read(user)
    assert error in str(found.value)


def test_a_token_file_that_is_not_text(read, tmp_path):
    (tmp_path / "token").write_bytes(b"\xff")
    with pytest.raises(InputError, match="contains invalid characters"):
        read({"tokenFile": "token"})


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"current-context": None}, "config: contexts: there is no context named none"),
        ({"current-context": "x"}, "contexts: there is no context named 'x'; set current-context"),
        ({"users": "text"}, "config: users: there is no user named 'u'"),
        ({"clusters": [1]}, "config: clusters: there is no cluster named 'c'"),
        ({"kind": "Pod"}, "config: there is not exactly one Config in it"),
        ({"contexts": [{"name": "lab", "context": 1}]}, "there is no user named none"),
        ({"x": [1] * 360_000}, "config: is larger than the limit of 1,024 KiB"),
    ],
)
def test_a_file_that_cannot_be_used(read, more, error):
    with pytest.raises(InputError) as found:
        read(**more)
    assert error in str(found.value)


def test_a_file_that_is_not_there_or_not_yaml(tmp_path):
    with pytest.raises(InputError, match="none: no such file or directory"):
        read_kubeconfig(tmp_path / "none")
    (tmp_path / "config").write_text("a: [\n")
    with pytest.raises(InputError, match="config: line"):
        read_kubeconfig(tmp_path / "config")

"""The API of a kubelet, with a server on the loopback interface."""

import pytest

from podslice.errors import HostError, InputError
from podslice.features.kubelet.api import Credentials, KubeletApi, parse_address
from tests.cases.tables import cases
from tests.unit.raw_server import RawServer
from tests.unit.tls_server import Certificates, KubeletServer

# a server and its client, on the loopback interface
pytestmark = pytest.mark.usefixtures("allow_effects")
WORD = "abc"
METRICS = b"""\
# HELP kubernetes_build_info [BETA] A metric with a constant '1' value
kubernetes_build_info{build_date="2026",git_version="v1.36.2",go_version="go1.26",major="1"} 1
"""


@pytest.fixture(scope="module")
def certificates():
    return Certificates()


@pytest.fixture
def kubelet(certificates):
    with KubeletServer(certificates) as server:
        server.documents["/pods"] = b"{}"
        yield server


def api(server, credentials=None, **more):
    credentials = credentials or Credentials()
    more = {"limit_bytes": 1000, **more}
    return KubeletApi(parse_address(server.url), credentials, **more)


@pytest.fixture
def trusted(certificates):
    return Credentials(authority=certificates.text("ca.crt"), token=WORD)


def test_a_document_is_read_with_a_token(kubelet, trusted):
    assert api(kubelet, trusted).get("/pods") == b"{}"
    assert kubelet.requests == [("/pods", f"Bearer {WORD}", None)]


def test_a_document_is_read_with_a_client_certificate(kubelet, certificates):
    files = {"certificate": "client.crt", "key": "client.key", "authority": "ca.crt"}
    credentials = Credentials(**{key: certificates.text(file) for key, file in files.items()})
    assert api(kubelet, credentials).get("/pods") == b"{}"
    ((_, authorization, certificate),) = kubelet.requests
    assert authorization is None
    assert (("commonName", "admin"),) in certificate["subject"]


def test_certificate_and_key_may_be_one_text(kubelet, certificates):
    both = certificates.text("client.crt") + certificates.text("client.key")
    api(kubelet, Credentials(certificate=both, authority=certificates.text("ca.crt"))).get("/pods")
    assert kubelet.requests[0][2]


def test_the_servers_own_certificate_may_be_trusted(kubelet, certificates):
    own = Credentials(authority=certificates.text("server.crt"))
    assert api(kubelet, own).get("/pods") == b"{}"


def test_an_unknown_authority_is_refused_before_anything_is_sent(kubelet):
    with pytest.raises(HostError) as error:
        api(kubelet, Credentials(token=WORD)).get("/pods")
    assert f"{kubelet.url}/pods: the certificate is not accepted: " in str(error.value)
    assert "state its authority with --kubelet-ca, or use --insecure" in str(error.value)
    assert kubelet.requests == []


def test_any_certificate_is_accepted_if_that_is_stated(kubelet):
    assert api(kubelet, is_verified=False).get("/pods") == b"{}"


def test_beyond_the_loopback_interface_the_name_counts(certificates):
    trusting = Credentials(authority=certificates.text("ca.crt"))

    def checks_name(url):
        found = KubeletApi(parse_address(url), trusting, limit_bytes=1)
        return found._context.check_hostname  # the network is not reachable here

    assert checks_name("https://node1")
    assert checks_name("https://10.0.0.1:10250")
    assert not checks_name("https://localhost")
    assert not checks_name("https://[::1]")


def test_the_name_counts_with_the_authorities_of_the_host(certificates, kubelet, monkeypatch):
    """They sign for everyone, so that any process could be in the place of the kubelet."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.path("ca.crt")))
    with pytest.raises(HostError, match="use the name or the address that is in the certificate"):
        api(kubelet, Credentials(token=WORD)).get("/pods")
    assert kubelet.requests == []


@cases
def test_a_refusal_has_its_remedy(kubelet, trusted, status, error):
    kubelet.statuses["/pods"] = status
    with pytest.raises(HostError) as found:
        api(kubelet, trusted).get("/pods")
    assert str(found.value).startswith(f"{kubelet.url}/pods: ")
    assert error in str(found.value)


def test_without_credentials_a_refusal_asks_for_them(kubelet, certificates):
    for path, resource in (("/pods", "nodes/pods, or"), ("/metrics", "nodes/metrics")):
        kubelet.statuses[path] = 403
        with pytest.raises(HostError, match=f"the verb get for {resource}"):
            api(kubelet, is_verified=False).get(path)
    kubelet.statuses["/pods"] = 401
    with pytest.raises(HostError, match="requires credentials; state them with --kubeconfig"):
        api(kubelet, is_verified=False).get("/pods")


def test_a_port_with_or_without_tls(trusted):
    with KubeletServer() as plain:
        address = parse_address(plain.url.replace("http:", "https:"))
        with pytest.raises(HostError, match="the port does not use TLS"):
            KubeletApi(address, trusted, limit_bytes=1).get("/pods")
        plain.documents["/pods"] = b"{}"
        plain.statuses["/pods"] = 400  # as servers in Go reply to a client without TLS
        with pytest.raises(HostError, match=r"status 400; its port may require https://"):
            api(plain).get("/pods")


def test_a_document_has_a_deadline():
    with RawServer(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n", pause_sec=0.1) as server:
        found = KubeletApi(
            parse_address(f"http://127.0.0.1:{server.port}"),
            Credentials(),
            limit_bytes=1000,
            within_sec=0.3,
        )
        with pytest.raises(HostError, match=r"/pods: there is no complete reply within 0.3 s"):
            found.get("/pods")


def test_a_reply_has_a_limit(kubelet, trusted):
    kubelet.documents["/pods"] = b"x" * 2048
    assert len(api(kubelet, trusted, limit_bytes=2048).get("/pods")) == 2048
    with pytest.raises(HostError, match="larger than the limit of 1 KiB"):
        api(kubelet, trusted, limit_bytes=2047).get("/pods")


def test_the_version_is_that_of_the_metrics(kubelet, trusted):
    kubelet.documents["/metrics"] = METRICS
    assert api(kubelet, trusted).version() == "v1.36.2"
    kubelet.documents["/metrics"] = b"other 1\n"
    with pytest.raises(HostError, match="/metrics: it does not have the version of the kubelet;"):
        api(kubelet, trusted).version()


def test_metrics_are_searched_once(kubelet, trusted):
    """A search from each of many beginnings to the end would take hours."""
    kubelet.documents["/metrics"] = b"kubernetes_build_info{\n" * 2**17 + METRICS
    assert api(kubelet, trusted, limit_bytes=2**22).version() == "v1.36.2"


def test_no_kubelet():
    with KubeletServer() as gone:
        pass
    with pytest.raises(HostError, match=r"/pods: .*refused"):
        api(gone).get("/pods")


def test_the_read_only_port_gets_no_credentials():
    with KubeletServer() as server:
        server.documents["/pods"] = b"[]"
        assert api(server).get("/pods") == b"[]"
        for given in (Credentials(token=WORD), Credentials(certificate="x")):
            with pytest.raises(HostError, match="credentials are not sent without encryption"):
                api(server, given)
        assert [authorization for _, authorization, _ in server.requests] == [None]


@pytest.mark.parametrize("field", ["authority", "certificate"])
def test_certificates_that_are_none(kubelet, field):
    with pytest.raises(HostError, match="the certificates are not valid"):
        api(kubelet, Credentials(**{field: "no PEM"}))


@cases
def test_addresses(text, shown):
    assert str(parse_address(text)) == shown


@cases
def test_texts_that_are_not_addresses(text):
    with pytest.raises(InputError, match=r"--kubelet: .*write https://127.0.0.1:10250"):
        parse_address(text)


def test_the_user_is_not_stated_in_the_url():
    with pytest.raises(InputError, match=r"^--kubelet: .* state the user with --kubeconfig$"):
        parse_address("https://user@a")

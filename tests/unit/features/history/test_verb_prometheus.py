"""`recommend --prometheus`, with a server of prepared answers on the loopback interface."""

import json
import os
import subprocess
import sys
import time
from urllib.parse import parse_qs, urlsplit

import pytest

from podslice.errors import ServerError
from podslice.features.history import prometheus as prometheus_history
from podslice.features.history.prometheus import PrometheusApi
from tests.cases.tables import cases
from tests.unit.builders import manifest
from tests.unit.features.history.rows import START_SEC
from tests.unit.raw_server import RawServer
from tests.unit.tls_server import Certificates, KubeletServer

pytestmark = pytest.mark.usefixtures("allow_effects")
MI = 2**20
NOW_SEC = START_SEC + 86_400
CPU, MEMORY, KILLS = "cpu_usage", "memory_working_set", "oom"


class Server(KubeletServer):
    """The values of each metric by container, an empty name for the pod; each for a whole day."""

    def __init__(self, *certificate):
        super().__init__(*certificate)
        self.values = {
            (CPU, ""): 1.0,
            (MEMORY, ""): 100 * MI,
            (CPU, "app"): 1.0,
            (MEMORY, "app"): 100 * MI,
            (CPU, "log"): 0.1,
        }
        self.queries = []
        self.raw = None
        """A status, a content, and headers for every query."""

    def reply(self, path):
        parts = urlsplit(path)
        fields = {name: value for name, (value,) in parse_qs(parts.query).items()}
        self.queries.append((parts.path, fields))
        return self.raw or (200, self.answer(fields["query"]))

    def answer(self, query):
        (metric,) = (each for each in (CPU, MEMORY, KILLS) if each in query)
        is_pod = query.startswith("max by (namespace, pod) (")
        result = [
            {"metric": {"container": name}, "values": self.points(metric, value)}
            for (of, name), value in self.values.items()
            if of == metric and (not name) is is_pod
        ]
        return json.dumps({"status": "success", "data": {"result": result}}).encode()

    @staticmethod
    def points(metric, value):
        if metric == KILLS:
            return [[NOW_SEC, str(value)]]
        return [[at, str(value)] for at in range(START_SEC, NOW_SEC + 1, 300)]


@pytest.fixture
def now(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: float(NOW_SEC))


@pytest.fixture
def server(now, here):
    with Server() as made:
        yield made


@pytest.fixture
def recommend(podslice, server):
    return lambda *arguments: podslice("recommend", "--prometheus", server.url, *arguments)


def test_the_amounts_are_those_of_recorded_usage(recommend, server):
    found = json.loads(recommend("web", "-o", "json").out)
    (pod,) = found["pods"]
    assert pod["cpu_request"]["recommended_milli"] == 1169
    assert pod["memory_limit"]["recommended_bytes"] == 121 * MI
    assert (pod["history_sec"], pod["samples"]) == (86_400, 289 * 5)
    app, log = pod["containers"]
    assert (app["name"], app["memory_request"]["recommended_bytes"]) == ("app", 121 * MI)
    assert (log["name"], log["cpu_request"]["recommended_milli"]) == ("log", 127)
    assert log["memory_request"] is None


def test_memory_is_recommended_without_cpu(recommend, server):
    server.values = {(MEMORY, ""): 100 * MI, (MEMORY, "app"): 50 * MI}
    (pod,) = json.loads(recommend("web", "-o", "json").out)["pods"]
    assert pod["cpu_request"] is None
    assert pod["memory_limit"]["recommended_bytes"] == 121 * MI
    assert (pod["history_sec"], pod["samples"]) == (86_400, 289 * 5)
    (app,) = pod["containers"]
    assert (app["name"], app["cpu_request"]) == ("app", None)
    assert recommend("web").out.splitlines()[1].split()[3:] == [
        "-",
        "-",
        "→",
        "121Mi",
        "-",
        "→",
        "121Mi",
    ]


def test_oom_kills_prevent_a_decrease(recommend, podslice, files, memory, server):
    files({"web.yaml": manifest("web", {"memory": "512Mi"})})
    assert podslice("apply", "-f", "web.yaml").code == 0
    # an increase is an estimate of Prometheus
    server.values |= {(KILLS, ""): 1.2, (KILLS, "app"): 0.3}
    (pod,) = json.loads(recommend("-o", "json").out)["pods"]
    assert (pod["oom_kills"], pod["memory_request"]["veto"]) == (1, "oom-kills")


def test_the_queries_are_of_the_pod_and_of_eight_days(recommend, server):
    assert recommend('shop/a"b').code == 0
    assert len(server.queries) == 6
    for path, fields in server.queries:
        assert path == "/api/v1/query_range"
        assert 'namespace="shop", pod="a\\"b"' in fields["query"]
        assert "{{" not in fields["query"]
        assert int(fields["end"]) - int(fields["start"]) == 8 * 86_400
        assert fields["step"] == "300"


def test_without_applied_pods_some_must_be_named(recommend, server):
    assert recommend() == (0, "", "no pods are applied; name the pods to show\n")


def test_a_pod_without_metrics_is_reported(recommend, podslice, files, memory, server):
    server.values = {}
    code, out, err = recommend("web")
    assert (code, out) == (1, "")
    assert err == (
        "error: default/web: no usage is recorded yet; the server needs metrics of podslice-agent"
        " or of cAdvisor with this pod\n"
    )
    files({"web.yaml": manifest("web", {"memory": "512Mi"})})
    assert podslice("apply", "-f", "web.yaml").code == 0
    assert recommend("wbe").err.endswith(" with this pod; did you mean default/web?\n")
    assert recommend("web").err.endswith(" with this pod\n")


UNREACHABLE = "check the address, and that the server is reachable from this host"
MORE_TIME = "allow queries more time with --query.timeout of the server"
IN_LOG = "the log of the server may have more"


def stated(kind, text):
    return json.dumps({"status": "error", "errorType": kind, "error": text}).encode()


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        ((200, b"<html>"), ": the answer is not JSON, or has more than 350,000 values; is it the"),
        (
            (200, b" " * 1025),
            ": the reply is larger than the limit of 1 KiB; is it the address of a Prometheus",
        ),
        (
            (503, b" " * 1025),
            ": the reply is larger than the limit of 1 KiB; is it the address of a Prometheus",
        ),
        (
            (503, stated("timeout", "query timed out")),
            f": the server refuses the query: query timed out; {MORE_TIME}",
        ),
        ((502, b"<html>"), f": the server answers 502 Bad Gateway; {IN_LOG}"),
    ],
)
def test_a_server_that_does_not_answer_is_an_error(recommend, server, monkeypatch, raw, error):
    """It is reported once, not for each pod."""
    monkeypatch.setattr(prometheus_history, "ANSWER_BYTES_MAX", 1024)
    server.raw = raw
    code, out, err = recommend("web", "db")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"error: {server.url}{error}")


def test_no_server(recommend, podslice, files, memory, server):
    with Server() as gone:
        pass
    files({"web.yaml": manifest("web", {"memory": "512Mi"})})
    assert podslice("apply", "-f", "web.yaml").code == 0
    error = f"error: {gone.url} does not answer: connection refused; {UNREACHABLE}\n"
    for pods in ((), ("web",)):
        assert podslice("recommend", "--prometheus", gone.url, *pods) == (1, "", error)


def test_a_redirection_is_not_followed(recommend, server):
    with Server() as other:
        server.raw = (302, b"", ("Location", f"{other.url}/api/v1/query_range?query={CPU}"))
        error = (
            "the server answers 302 Found; redirections are not followed; state the final address"
        )
        assert recommend("web") == (1, "", f"error: {server.url}: {error}\n")
        assert (other.queries, len(server.queries)) == ([], 1)


def test_a_query_has_a_deadline():
    with RawServer(b"HTTP/1.1 200 OK\r\n\r\n", b"[", pause_sec=0.1) as slow:
        api = PrometheusApi(f"http://127.0.0.1:{slow.port}", within_sec=0.3)
        with pytest.raises(
            ServerError, match=r"does not answer: there is no complete reply within 0"
        ):
            api.read_history("default/web", NOW_SEC)


@pytest.fixture
def secure(now, here, certificates):
    with Server(certificates, "local") as made:
        yield made


@pytest.fixture
def certificates():
    return Certificates()


def test_https_with_a_stated_authority(podslice, secure, certificates):
    authority = f"--prometheus-ca={certificates.path('local.crt')}"
    for url in (secure.url, secure.url.replace("127.0.0.1", "localhost")):
        assert podslice("recommend", "--prometheus", url, authority, "web").code == 0
    assert len(secure.queries) == 12


def test_https_with_the_authorities_of_the_host(podslice, secure, certificates, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.path("local.crt")))
    assert podslice("recommend", "--prometheus", secure.url, "web").code == 0
    # a stated one replaces those
    authority = f"--prometheus-ca={certificates.path('ca.crt')}"
    assert podslice("recommend", "--prometheus", secure.url, authority, "web").code == 1
    assert len(secure.queries) == 6


def test_https_with_an_unknown_authority(podslice, secure):
    code, out, err = podslice("recommend", "--prometheus", secure.url, "web")
    assert (code, out) == (1, "")
    assert f"error: {secure.url} does not answer: the certificate is not accepted: " in err
    assert err.endswith("; state its authority with --prometheus-ca\n")
    assert secure.queries == []


def test_https_with_a_certificate_of_another_host(podslice, now, here, certificates):
    """The name counts on the loopback interface, too: a server's authority signs for others."""
    authority = f"--prometheus-ca={certificates.path('ca.crt')}"
    with Server(certificates, "server") as other:
        ended = podslice("recommend", "--prometheus", other.url, authority, "web")
    assert ended.code == 1
    assert ended.err.endswith("; use the name or the address that is in the certificate\n")
    assert other.queries == []


def test_https_in_a_process_of_its_own(secure, certificates, tmp_path):
    """A verb without encrypted connections has no ssl."""
    program = (sys.executable, "-m", "podslice", "recommend", "--user", "default/web", "-o", "json")
    options = (f"--prometheus={secure.url}", f"--prometheus-ca={certificates.path('local.crt')}")
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    ended = subprocess.run(
        [*program, *options], capture_output=True, text=True, check=False, env=environment
    )
    assert len(secure.queries) == 6, ended.stderr


@cases
def test_authorities_that_are_not_accepted(podslice, files, here, arguments, error):
    files({"text": "text", "bad": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"})
    ended = podslice("recommend", *arguments, "web")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {error}")


@cases
def test_only_urls_of_servers_are_accepted(podslice, here, url, error):
    ended = podslice("recommend", "--prometheus", url, "web")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: --prometheus: {error}")

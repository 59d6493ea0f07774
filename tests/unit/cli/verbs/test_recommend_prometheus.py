"""`recommend --prometheus`, with a server of prepared answers."""

import io
import json
import time
import urllib.request
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlsplit

import pytest

from podslice.usage import prometheus_history
from tests.cases.usage_rows import START_SEC
from tests.unit.builders import manifest

MI = 2**20
NOW_SEC = START_SEC + 86_400
URL = "http://127.0.0.1:9090"
CPU, MEMORY, KILLS = "cpu_usage", "memory_working_set", "oom"


class Server:
    """The values of each metric by container, an empty name for the pod; each for a whole day."""

    def __init__(self):
        self.values = {}
        self.kills_sec = ()
        self.queries = []
        self.raw = None

    def urlopen(self, address, timeout):
        parts = urlsplit(address)
        fields = {name: value for name, (value,) in parse_qs(parts.query).items()}
        self.queries.append((f"{parts.scheme}://{parts.netloc}{parts.path}", fields))
        assert timeout > 0
        if isinstance(self.raw, Exception):
            raise self.raw
        return io.BytesIO(self.raw or self.answer(fields["query"]))

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
def server(monkeypatch, here):
    made = Server()
    made.values = {
        (CPU, ""): 1.0,
        (MEMORY, ""): 100 * MI,
        (CPU, "app"): 1.0,
        (MEMORY, "app"): 100 * MI,
        (CPU, "log"): 0.1,
    }
    monkeypatch.setattr(urllib.request, "urlopen", made.urlopen)
    monkeypatch.setattr(time, "time", lambda: float(NOW_SEC))
    return made


@pytest.fixture
def recommend(podslice):
    return lambda *arguments: podslice("recommend", "--prometheus", URL, *arguments)


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
    for address, fields in server.queries:
        assert address == f"{URL}/api/v1/query_range"
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


def refused(code, text, reason="Reason"):
    return HTTPError(URL, code, reason, {}, io.BytesIO(text))


def stated(kind, text):
    return json.dumps({"status": "error", "errorType": kind, "error": text}).encode()


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (URLError("refused"), f" does not answer: refused; {UNREACHABLE}"),
        (HTTPException("no status"), f" does not answer: no status; {UNREACHABLE}"),
        (TimeoutError("timed out"), f" does not answer: timed out; {UNREACHABLE}"),
        (b"<html>", ": the answer is not JSON; is it the address of a Prometheus server?"),
        (b" " * 101, ": the answer is larger than 0 MiB"),
        (refused(503, b" " * 101), ": the answer is larger than 0 MiB"),
        (
            refused(503, stated("timeout", "query timed out")),
            f": the server refuses the query: query timed out; {MORE_TIME}",
        ),
        (refused(502, b"<html>"), f": the server answers 502 Bad Gateway; {IN_LOG}"),
    ],
)
def test_a_server_that_does_not_answer_is_an_error(recommend, server, monkeypatch, raw, error):
    """It is reported once, not for each pod."""
    monkeypatch.setattr(prometheus_history, "_ANSWER_BYTES_MAX", 100)
    server.raw = raw
    assert recommend("web", "db") == (1, "", f"error: {URL}{error}\n")


def test_a_server_that_does_not_answer_is_an_error_without_named_pods(
    recommend, podslice, files, memory, server
):
    files({"web.yaml": manifest("web", {"memory": "512Mi"})})
    assert podslice("apply", "-f", "web.yaml").code == 0
    server.raw = URLError("refused")
    assert recommend() == (1, "", f"error: {URL} does not answer: refused; {UNREACHABLE}\n")


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("file:///etc/passwd", "must be the URL of a server; write http://127.0.0.1:9090"),
        ("localhost:9090", "must be the URL of a server"),
        ("http://me:x@host", "credentials are not supported; use a proxy that adds them"),
        ("http://", "must be the URL of a server"),
        ("http://[", "must be a URL: Invalid IPv6 URL"),
    ],
)
def test_only_urls_of_servers_are_accepted(podslice, server, url, error):
    ended = podslice("recommend", "--prometheus", url, "web")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: --prometheus: {error}")
    assert server.queries == []

"""A real Prometheus server in a namespace, and queries to it."""

import contextlib
import json
import subprocess
import sys
import urllib.parse
from pathlib import Path

from tests.host import agent, front
from tests.lab import extras
from tests.lab.machine import START_SERVICE
from tests.lab.recipe import DEFAULT_SUITE
from tests.unit.agent.monitoring import FOLDER

PACKAGES = ("prometheus",)
NOT_NEEDED = ("usr/share/javascript", "usr/share/nodejs", "usr/share/fonts", "usr/share/prometheus")
EXAMPLE, CONFIGURATION = (f"/etc/prometheus/{name}.yml" for name in ("prometheus", "test"))


def install(machine, *files):
    """Install Prometheus and promtool with the files of the examples, and others beside them."""
    extras.unpack(machine, DEFAULT_SUITE, PACKAGES, left_out=NOT_NEEDED)
    for path in (*FOLDER.iterdir(), *files):
        machine.put(f"/etc/prometheus/{path.name}", path.read_text())


@contextlib.contextmanager
def serving(machine, sources):
    """Serve files with pages, and sockets of agents of other machines, by addresses of a namespace."""
    command = ("nsenter", f"--net=/proc/{machine.pid}/ns/net", sys.executable, "-I", front.__file__)
    arguments = (f"{address}={source}" for address, source in sources.items())
    with subprocess.Popen(
        [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        yield  # then its input is closed


def start(machine, config, *, targets):
    """Start Prometheus with a configuration, and wait until all targets have been scraped."""
    # a test has less time than the examples; it is also the time limit of a scrape
    hurried = {"scrape_interval": "2s", "evaluation_interval": "1s"}
    machine.put(CONFIGURATION, json.dumps({**config, "global": hurried}))
    machine.run(
        *(*START_SERVICE, "--unit=scraper", "prometheus"),
        *(f"--config.file={CONFIGURATION}", "--storage.tsdb.path=/tmp/tsdb"),
        "--web.listen-address=127.0.0.1:9090",
    )
    agent.until(lambda: value(machine, "sum(up)") == targets, 120, what="every scrape")


def promtool(machine, *arguments, **more):
    """Check that a tool succeeds without any remark."""
    result = machine.run("promtool", *arguments, **more)
    assert "FAIL" not in result.stdout + result.stderr
    return result


def alert_states(machine):
    """Return the states of all alerts by name; every rule must work."""
    groups = api(machine, "rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
    return {rule["name"]: rule["state"] for rule in rules if rule["type"] == "alerting"}


def api(machine, path, **query):
    """Return the answer of Prometheus; nothing while it is not up yet."""
    url = f"http://127.0.0.1:9090/api/v1/{path}?{urllib.parse.urlencode(query)}"
    result = machine.module("tests.host.fetch", url, check=False)
    if result.exit_code:
        return None
    ((_, answer),) = json.loads(result.stdout)
    return json.loads(answer)["data"]


def value(machine, expression, **query):
    """Return the value of an expression with one; None without one."""
    data = api(machine, "query", query=expression, **query)
    return float(data["result"][0]["value"][1]) if data and data["result"] else None


def figure(machine, expression, **query):
    """Return the only value, once there is one: a scrape may fail on a slow machine."""
    found = []
    agent.until(
        lambda: found.append(value(machine, expression, **query)) or found[-1] is not None, 60
    )
    return found[-1]


def with_time(page, time_sec):
    """Return a page of metrics with the time at which it was fetched, in each sample."""
    stamp = f" {round(time_sec * 1000)}\n"
    lines = page.splitlines()
    return "".join(line + ("\n" if line.startswith("#") else stamp) for line in lines)


def put_page(path: Path, page: str) -> None:
    """Replace a page that is served."""
    new = path.with_suffix(".new")
    new.write_text(page)
    new.rename(path)

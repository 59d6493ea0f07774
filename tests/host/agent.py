"""An agent in a machine: its shipped unit, with the source tree in place of the package."""

import json
import time
from pathlib import Path

from tests.host.scenario import show
from tests.lab.machine import START_SERVICE

ROOT = Path(__file__).resolve().parents[2]
UNIT = "podslice-agent.service"
UNIT_FILE, NEW_UNIT_FILE = f"/run/systemd/system/{UNIT}", f"/run/{UNIT}.new"
SYSUSERS = ROOT / "units/sysusers.d/podslice.conf"
MANIFESTS = "/etc/podslice/manifests"
OPTIONS = "/run/podslice-agent-options"
SOCKET = "/run/podslice/agent.sock"
WEB = "kubepods-burstable-podweb.default.slice"
"""The slice of the pod `web`."""
FOLLOW = "--sync-period=1h"
"""Longer than any test waits: a missed event is not hidden by a comparison of all units."""
ASK = """
import http.client, socket, sys
connection = http.client.HTTPConnection("agent")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
connection.request("GET", sys.argv[2])
answer = connection.getresponse()
print(answer.read().decode())
sys.exit(answer.status != 200)
"""
# a daemon-reload takes seconds in an emulated machine
INSTALL = f"""
mkdir -p {MANIFESTS} /run/systemd/system
if ! cmp -s {NEW_UNIT_FILE} {UNIT_FILE}; then
  mv {NEW_UNIT_FILE} {UNIT_FILE} && systemd-sysusers podslice.conf && systemctl daemon-reload || exit
fi
"$@"
"""
REMOVE = f"""
systemctl stop {UNIT}
systemctl reset-failed {UNIT}
rm -rf {MANIFESTS} {OPTIONS}
"""


_began = {}


def begin(machine):
    """Count events from here on."""
    _began[machine] = cursor(machine)


def install(machine, *options, more=""):
    """Install the unit, with options of the verb and further directives of the service."""
    _install(machine, (FOLLOW, *options), more, then=())


def start(machine, *options, more=""):
    """Install and start the agent; it is ready on return."""
    _install(machine, (FOLLOW, *options), more, then=("systemctl", "start", UNIT))


def remove(machine):
    """Stop the agent, and remove its manifests; applied pods and, for the next test, its unit stay."""
    machine.run("sh", "-c", REMOVE)
    if machine.kind == "local":
        machine.run("rm", "-f", UNIT_FILE)
        machine.run("systemctl", "daemon-reload")


def _install(machine, options, more, then):
    text = (ROOT / "units" / UNIT).read_text()
    text = text.replace("ExecReload=/usr/bin/podslice ", "ExecReload=/usr/bin/python3 -m podslice ")
    command = "/usr/bin/python3 -m podslice agent $AGENT_OPTIONS"
    lines = [
        f"ExecStart={command}" if line.startswith("ExecStart=") else line
        for line in text.splitlines()
    ]
    place = lines.index("[Service]") + 1
    # read at each start, so that other options need no daemon-reload
    lines[place:place] = ["WorkingDirectory=/src", f"EnvironmentFile={OPTIONS}", *more.splitlines()]
    machine.put(OPTIONS, f'AGENT_OPTIONS="{" ".join(options)}"\n')
    machine.put("/usr/lib/sysusers.d/podslice.conf", SYSUSERS.read_text())
    machine.put(NEW_UNIT_FILE, "\n".join(lines) + "\n")
    machine.run("sh", "-c", INSTALL, "install", *then)


def hang_up(machine):
    """Send SIGHUP to the agent, which then reads its configuration again."""
    machine.run("systemctl", "kill", "--kill-whom=main", "--signal=HUP", UNIT)


def pid(machine):
    return int(machine.run("systemctl", "show", "-P", "MainPID", UNIT).stdout)


def manifest(name, *, cpu="10m", memory="8Mi", limit="64Mi", **spec):
    """Return one Burstable pod; `spec` has further fields."""
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}}
    container = {"name": "main", "resources": resources}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container], **spec},
        }
    )


def put(machine, name, text):
    """Write a manifest atomically, as editors and package managers do."""
    path = f"{MANIFESTS}/{name}.yaml"
    machine.put(f"{path}.new", text)
    machine.run("mv", f"{path}.new", path)


def until(check, timeout_sec=300.0, *, what="it", explain=str):
    """Wait until a check holds, and return its result; the timeout is for a busy machine.

    A check that takes long, as all do in an emulated machine, is repeated less often: it delays the
    agent.
    """
    deadline = time.monotonic() + timeout_sec
    while True:
        began = time.monotonic()
        found = check()
        if found:
            return found
        now = time.monotonic()
        assert now < deadline, f"{what} is not so after {timeout_sec} s {explain()}"
        time.sleep(min(max(0.05, 2 * (now - began)), 5.0))


def events(machine, *kinds):
    """Return the agent's events in the journal since `begin`, as dicts; optionally of some kinds."""
    return [each for each in all_events(machine, *kinds) if "PODSLICE_VERB" not in each]


def all_events(machine, *kinds):
    """Return these events, and those of verbs."""
    since = [f"--after-cursor={_began[machine]}"]
    names = [f"PODSLICE_EVENT={kind}" for kind in kinds] or ["SYSLOG_IDENTIFIER=podslice"]
    return [json.loads(line) for line in _journal(machine, *since, *names).splitlines()]


def cursor(machine):
    """Return the present end of the journal."""
    return json.loads(_journal(machine, "-n", "1"))["__CURSOR"]


def _journal(machine, *arguments):
    """Return entries of the journal, all that have been logged so far."""
    script = 'journalctl --sync && exec journalctl -o json --no-pager "$@"'
    return machine.run("sh", "-c", script, "journalctl", *arguments).stdout


def ask(machine, path, socket=SOCKET):
    """Return the agent's answer at its socket."""
    return machine.run("python3", "-c", ASK, socket, path).stdout


def last_log_sec(machine):
    """Return the time of the agent's last journal entry, in seconds since the boot."""
    last = json.loads(_journal(machine, "-n", "1", "SYSLOG_IDENTIFIER=podslice"))
    return int(last["__MONOTONIC_TIMESTAMP"]) / 1e6


def until_quiet(machine, timeout_sec=300.0):
    """Wait until the agent has logged nothing for a while; frequent queries slow it down."""
    deadline = time.monotonic() + timeout_sec
    pause_sec = 2.5 if machine.kind == "vm" else 0.5
    before = 0.0
    while (last := last_log_sec(machine)) != before or not is_active(machine):
        assert time.monotonic() < deadline, "the agent keeps logging"
        before = last
        time.sleep(pause_sec)


def is_active(machine, unit=UNIT):
    """Return whether a unit, by default that of the agent, is active."""
    return show(machine, unit, "ActiveState") == {"ActiveState": "active"}


def terminate_slowly(machine):
    """Remove the manifest of `web`, whose pod has a process that ignores SIGTERM; return the event."""
    script = "trap '' TERM; while :; do sleep 1; done"
    machine.run(*START_SERVICE, f"--slice={WEB}", "sh", "-c", script)
    machine.run("rm", f"{MANIFESTS}/web.yaml")
    (event,) = until(lambda: events(machine, "pod-terminating"))
    return event

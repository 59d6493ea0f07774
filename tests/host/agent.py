"""An agent in a machine: its shipped unit, with the source tree in place of the package."""

import json
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNIT = "podslice-agent.service"
SYSUSERS = ROOT / "units/sysusers.d/podslice.conf"
MANIFESTS = "/etc/podslice/manifests"
SOCKET = "/run/podslice/agent.sock"
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


_began = {}


def begin(machine):
    """Count events from here on."""
    _began[machine] = cursor(machine)


def install(machine, *options, more=""):
    """Install the unit, with options of the verb and further directives of the service."""
    text = (ROOT / "units" / UNIT).read_text()
    command = " ".join(["/usr/bin/python3", "-m", "podslice", "agent", *options])
    text = text.replace("ExecReload=/usr/bin/podslice ", "ExecReload=/usr/bin/python3 -m podslice ")
    lines = [
        f"ExecStart={command}" if line.startswith("ExecStart=") else line
        for line in text.splitlines()
    ]
    place = lines.index("[Service]") + 1
    lines[place:place] = ["WorkingDirectory=/src", *more.splitlines()]
    if machine.kind == "vm":
        # as in a package: the sandbox may not write, and every start would take seconds longer
        machine.run("python3", "-m", "compileall", "-q", "/src/podslice")
    machine.put(f"/run/systemd/system/{UNIT}", "\n".join(lines) + "\n")
    machine.put("/usr/lib/sysusers.d/podslice.conf", SYSUSERS.read_text())
    machine.run("systemd-sysusers", "podslice.conf")
    machine.put(f"{MANIFESTS}/.keep", "")
    machine.run("systemctl", "daemon-reload")


def start(machine, *options, more=""):
    """Install and start the agent; it is ready on return."""
    install(machine, *options, more=more)
    machine.run("systemctl", "start", UNIT)


def remove(machine):
    """Stop the agent, and remove it and its manifests; applied pods stay."""
    machine.run("systemctl", "stop", UNIT, check=False)
    machine.run("systemctl", "reset-failed", UNIT, check=False)
    machine.run("rm", "-rf", f"/run/systemd/system/{UNIT}", MANIFESTS)
    machine.run("systemctl", "daemon-reload")


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


def until(check, timeout_sec=30.0, *, what="it", explain=str):
    """Wait until a check holds, and return its result; the timeout is for a busy machine.

    It is below the agent's sync period, which would hide a missed event.
    """
    deadline = time.monotonic() + timeout_sec
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} is not so after {timeout_sec} s {explain()}"
        time.sleep(0.05)


def events(machine, *kinds):
    """Return the agent's events in the journal since `begin`, as dicts; optionally of some kinds."""
    return [each for each in all_events(machine, *kinds) if "PODSLICE_VERB" not in each]


def all_events(machine, *kinds):
    """Return these events, and those of verbs."""
    since = [f"--after-cursor={_began[machine]}"]
    names = [f"PODSLICE_EVENT={kind}" for kind in kinds] or ["SYSLOG_IDENTIFIER=podslice"]
    machine.run("journalctl", "--sync")
    out = machine.run("journalctl", "-o", "json", "--no-pager", *since, *names).stdout
    return [json.loads(line) for line in out.splitlines()]


def cursor(machine):
    """Return the present end of the journal."""
    machine.run("journalctl", "--sync")
    out = machine.run("journalctl", "-n", "1", "-o", "json", "--no-pager").stdout
    return json.loads(out)["__CURSOR"]


def ask(machine, path):
    """Return the agent's answer at its socket."""
    return machine.run("python3", "-c", ASK, SOCKET, path).stdout


def last_log_sec(machine):
    """Return the time of the agent's last journal entry, in seconds since the boot."""
    machine.run("journalctl", "--sync")
    out = machine.run(
        "journalctl", "-n", "1", "-o", "json", "--no-pager", "SYSLOG_IDENTIFIER=podslice"
    ).stdout
    return int(json.loads(out)["__MONOTONIC_TIMESTAMP"]) / 1e6


def until_quiet(machine, timeout_sec=60.0):
    """Wait until the agent has logged nothing for a while; frequent queries slow it down."""
    deadline = time.monotonic() + timeout_sec
    before = 0.0
    while (last := last_log_sec(machine)) != before or not is_active(machine):
        assert time.monotonic() < deadline, "the agent keeps logging"
        before = last
        time.sleep(2.5)


def is_active(machine):
    shown = machine.run("systemctl", "show", "-P", "ActiveState", UNIT).stdout
    return shown.strip() == "active"


def up_since_sec(machine):
    """Return the time at which the agent was ready, in seconds since the boot."""
    shown = machine.run("systemctl", "show", "-P", "ActiveEnterTimestampMonotonic", UNIT).stdout
    return int(shown) / 1e6

"""Pods with containers, with podman: `apply --start`, and the agent."""

import json

import pytest

from podslice.model.pod import default_uid
from podslice.model.unit import control_group_of
from tests.host import agent, podman
from tests.host.podman import IMAGE, LONG_SEC, WAIT
from tests.host.scenario import enforced, exists, kernel, show

MI = 2**20
POD_ID = f"pod{default_uid('default', 'web').replace('-', '_')}"
SLICE = f"kubepods-burstable-{POD_ID}.slice"
GROUP = control_group_of(SLICE)
POD = "web-pod.service"
APP, PREPARE, BROKEN, OF_ROOT, SIDE = (
    f"podslice-{POD_ID}-{name}.service" for name in ("app", "prepare", "broken", "of-root", "side")
)
VOLUMES = "/var/lib/containers/storage/volumes"
DATA = f"{VOLUMES}/emptyDir-web_data/_data"
OF_USER = "localhost/user:1"
MAKE_IMAGE = f"tar -C /rootfs -c . | podman import --change 'USER 1234' - {OF_USER}"
MAKE_CLAIM = f"""
podman volume create web-kept
mkdir -m 700 {VOLUMES}/web-kept/_data/old
touch {VOLUMES}/web-kept/_data/old/file
chmod 600 {VOLUMES}/web-kept/_data/old/file
"""
MANIFEST = f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings}}
data: {{mode: fast}}
---
apiVersion: v1
kind: Secret
metadata: {{name: login}}
stringData: {{password: 's3"cr $et%'}}
---
apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  terminationGracePeriodSeconds: 60
  resources: {{limits: {{memory: 256Mi}}}}
  securityContext: {{fsGroup: 2000}}
  initContainers:
  - name: prepare
    image: {IMAGE}
    command: [sh, -c, 'for each; do echo "<$each>"; done >/data/arguments; env >/data/variables; cat /data/arguments >/part/copy; cat /login/password >/kept/password; id -G >/fast/groups; id -G >/data/groups; echo "$(IP)" >/data/address']
    args: [sh, "", ";", a b, "%n", $HOME, $$, $(MODE), quo"te, 'back\\slash', "two\\nlines"]
    env:
    - {{name: MODE, valueFrom: {{configMapKeyRef: {{name: settings, key: mode}}}}}}
    - {{name: PASSWORD, valueFrom: {{secretKeyRef: {{name: login, key: password}}}}}}
    - {{name: IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}
    - {{name: NODE, valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}}}
    securityContext: {{runAsUser: 1234}}
    volumeMounts:
    - {{name: data, mountPath: /data}}
    - {{name: data, mountPath: /part, subPath: a/part}}
    - {{name: kept, mountPath: /kept}}
    - {{name: fast, mountPath: /fast}}
    - {{name: login, mountPath: /login}}
  containers:
  - name: app
    image: {OF_USER}
    securityContext: {{runAsNonRoot: true}}
    command: [sh, -c, 'cat /data/arguments; {WAIT}']
    resources: {{limits: {{memory: 64Mi}}}}
    volumeMounts: [{{name: data, mountPath: /data}}]
  volumes:
  - {{name: data, emptyDir: {{}}}}
  - {{name: kept, persistentVolumeClaim: {{claimName: web-kept}}}}
  - {{name: fast, emptyDir: {{medium: Memory}}}}
  - {{name: login, secret: {{secretName: login, defaultMode: 0400}}}}
"""
BROKEN_CONTAINER = """
  - {name: broken, image: "localhost/none:1", imagePullPolicy: Never}
  - {name: of-root, image: "localhost/app:1", securityContext: {runAsNonRoot: true}}
"""
KEPT = f"""
apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 60
  resources: {{limits: {{memory: 256Mi}}}}
  containers:
  - {{name: app, image: {IMAGE}, resources: {{limits: {{memory: 64Mi}}}}}}
  - {{name: side, image: {IMAGE}, resources: {{limits: {{memory: 32Mi}}}}}}
"""
PROBER = f"podslice-probe-{POD_ID}-{{}}.service"
HANGS = PROBER.format("hangs")
COMMANDS = f"podslice-commands-{POD_ID}-mixed.service"
PROBED = f"""
apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  hostIPC: true
  containers:
  - name: hangs
    image: {IMAGE}
    command: [sh, -c, 'sleep 100000 | busybox nc -l -p 8080 & {WAIT}']
    readinessProbe: {{httpGet: {{port: 8080}}, timeoutSeconds: 100000}}
  - name: mixed
    image: {IMAGE}
    command: [sh, -c, 'touch /tmp/alive; httpd -p 8081; {WAIT}']
    startupProbe: {{tcpSocket: {{port: 8081}}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 600}}
    livenessProbe:
      exec: {{command: [test, -e, /tmp/alive]}}
      periodSeconds: 1
      timeoutSeconds: 60
      failureThreshold: 1
  - name: rpc
    image: {IMAGE}
    # with Python and the sources of the machine
    env: [{{name: PATH, value: /bin}}]
    command: [sh, -c, 'touch /tmp/alive; cd /src; /usr/lib/*/ld-linux*.so.2 /usr/bin/python3 -m tests.grpc_server 9090 /tmp/alive & {WAIT}']
    startupProbe: {{grpc: {{port: 9090}}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 600}}
    livenessProbe: {{grpc: {{port: 9090, service: shop.Cart}}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1}}
    volumeMounts: [{{name: usr, mountPath: /usr, readOnly: true}}, {{name: src, mountPath: /src, readOnly: true}}]
  volumes: [{{name: usr, hostPath: {{path: /usr}}}}, {{name: src, hostPath: {{path: /src}}}}]
"""
OPTIONS = "/etc/podslice/podslice.toml"
KEEPS = """
containers = "quadlet"
eviction-hard = "pid.available<{}"
eviction-pressure-transition-period = "1s"
"""
ENOUGH, SHORT = "1", "1000000"
"""Thresholds with and without a shortage of process ids."""
FILE = "/etc/containers/systemd/web_side.container"
NAMED = """
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {selector: {app: front}}
---
apiVersion: v1
kind: Service
metadata: {name: back}
spec: {clusterIP: None, selector: {app: back}}
"""
for name, more in (
    ("front", "dnsPolicy: None, dnsConfig: {nameservers: [192.0.2.1]}"),
    ("back", "dnsConfig: {searches: [example.com], options: [{name: ndots, value: '2'}]}"),
):
    NAMED += f"""
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: {name}}}
spec:
  serviceName: {name}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: app, image: {IMAGE}, command: [sh, -c, 'echo {name} >/tmp/name; httpd -p 8080 -h /tmp; {WAIT}']}}], {more}}}
"""


@pytest.fixture
def box(clean_podman_namespace):
    return clean_podman_namespace


def apply(box, text, *, check=True):
    box.put("/web.yaml", text)
    command = ("apply", "-f", "/web.yaml", "--start")
    return box.podslice(*command, check=check)


def check_group(box):
    """Check that volumes and processes of the pod have its `fsGroup`."""
    assert box.get(f"{DATA}/groups").decode().split()[1:] == ["2000"]
    file = "/var/lib/podslice/volumes/default_web/login/password"
    found = {
        DATA: "2777 0",
        f"{DATA}/variables": "644 1234",
        f"{VOLUMES}/web-kept/_data": "2775 0",
        f"{VOLUMES}/web-kept/_data/password": "644 1234",
        f"{VOLUMES}/web-kept/_data/old": "2770 0",
        f"{VOLUMES}/web-kept/_data/old/file": "660 0",
        f"/run/podslice/pods/{default_uid('default', 'web')}/volumes/fast": "3777 0",
        file: "440 0",
    }
    shown = box.run("stat", "--format=%a %u %g", *found).stdout.splitlines()
    assert shown == [f"{each} 2000" for each in found.values()]
    assert box.get(f"{VOLUMES}/web-kept/_data/password") == box.get(file)


def check_fields_of_the_pod(box):
    """Check the variables that refer to what is known once the pod runs."""
    node = box.run("uname", "-n").stdout.strip().lower()
    assert f"NODE={node}\n" in box.get(f"{DATA}/variables").decode()
    address = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    infra = box.run("podman", "pod", "inspect", "web", "--format={{.InfraContainerID}}").stdout
    shown = box.run("podman", "inspect", infra.strip(), f"--format={address}").stdout
    assert box.get(f"{DATA}/address").decode() == shown


def rows(box):
    """The containers and other units of the pod, with their states."""
    found = json.loads(box.podslice("status", "-o", "json").stdout)
    others = {each["unit"]: each["runtime"] for each in found["others"]}
    return others | {
        each["container"]: each["state"] for each in found["units"] if each.get("container")
    }


def test_a_pod_starts_changes_and_is_deleted(box):
    box.run("sh", "-ec", f"{MAKE_IMAGE}; {MAKE_CLAIM}")
    done = apply(box, MANIFEST).stdout.splitlines()
    assert done[-3:-1] == [f"started {each} (default/web)" for each in (PREPARE, APP)]
    assert enforced(box, GROUP, "memory.max") == str(256 * MI)
    assert enforced(box, f"{GROUP}/{APP}", "memory.max") == str(64 * MI)
    assert box.get(f"{DATA}/arguments").decode() == (
        '<>\n<;>\n<a b>\n<%n>\n<$HOME>\n<$>\n<fast>\n<quo"te>\n<back\\slash>\n<two\nlines>\n'
    )
    assert b'PASSWORD=s3"cr $et%\n' in box.get(f"{DATA}/variables")
    check_group(box)
    check_fields_of_the_pod(box)
    # a part of the volume is open to all users, too
    assert box.get(f"{DATA}/a/part/copy") == box.get(f"{DATA}/arguments")
    plan = box.podslice("plan", "-f", "/web.yaml", "--start", check=False)
    note = "pod default/web: podslice apply mounts fast in memory before the pod starts\n"
    assert (plan.exit_code, plan.stderr) == (0, note), plan.stdout
    assert rows(box) == {POD: "podman", "prepare": "exited", "app": "active"}
    started = show(box, APP, "InvocationID"), show(box, POD, "InvocationID")

    # new limits restart nothing, and a container that fails prevents no other
    text = MANIFEST.replace("64Mi", "80Mi").replace(
        "  volumes:\n  - {name: d", f"{BROKEN_CONTAINER}  volumes:\n  - {{name: d"
    )
    failed = apply(box, text, check=False)
    assert failed.exit_code == 1
    lines = [each for each in failed.stdout.splitlines() if each.startswith("failed to start")]
    missing, of_root = sorted(lines)
    assert missing.startswith(f"failed to start {BROKEN} (default/web): ")
    assert missing.endswith("localhost/none:1: image not known")
    assert of_root.startswith(f"failed to start {OF_ROOT} (default/web): ")
    assert "runAsNonRoot does not allow the image, whose user is root" in of_root
    assert enforced(box, f"{GROUP}/{APP}", "memory.max") == str(80 * MI)
    assert started == (
        show(box, APP, "InvocationID"),
        show(box, POD, "InvocationID"),
    )

    # what changed restarts, what was removed from the manifest is stopped
    done = apply(
        box, MANIFEST.replace("cat /data/arguments; trap", "test -e /data; trap")
    ).stdout.splitlines()
    assert f"stopped {BROKEN} (default/web): the pod no longer has it" in done
    assert f"stopped {APP} (default/web): its files change" in done
    assert started[0] != show(box, APP, "InvocationID")
    assert started[1] == show(box, POD, "InvocationID")

    # podman takes longer than that to remove the pod
    box.podslice("delete", "web", "--grace-period", "0")
    assert box.run("podman", "ps", "--all", "--quiet").stdout == ""
    assert box.run("podman", "pod", "ps", "--quiet").stdout == ""
    assert box.run("pgrep", "conmon|catatonit", check=False).stdout == ""
    assert box.run("podman", "volume", "ls", "--quiet").stdout == "web-kept\n"
    listed = box.run(
        "systemctl", "list-units", "--all", "--plain", "--no-legend", "web*", "podslice-*"
    )
    assert listed.stdout == ""
    assert box.podslice("status").stdout == "no pods\n"
    assert "podslice-values-web" not in box.run("ls", "/run").stdout


def processes_of(box, unit):
    """Return the status of each process of a service, by its id."""
    group = show(box, unit, "ControlGroup")["ControlGroup"]
    found = {}
    for pid in kernel(box, group, "cgroup.procs").split():
        lines = box.get(f"/proc/{pid}/status").decode().splitlines()
        found[pid] = {
            key: value.strip() for key, _, value in (each.partition(":") for each in lines)
        }
    return found


def namespace_of(box, pid, kind="net"):
    return box.run("readlink", f"/proc/{pid}/ns/{kind}").stdout


def check_restart(box, name):
    """Let the liveness probe of a container fail once its startup probe has succeeded."""
    agent.until(lambda: agent.is_active(box, PROBER.format(name)), LONG_SEC)
    service = f"podslice-{POD_ID}-{name}.service"
    assert show(box, service, "NRestarts") == {"NRestarts": "0"}
    box.run("podman", "exec", f"web_{name}", "busybox", "rm", "/tmp/alive")
    again = {"NRestarts": "1", "SubState": "running"}
    agent.until(lambda: show(box, service, *again) == again, LONG_SEC)
    agent.until(lambda: agent.is_active(box, PROBER.format(name)), LONG_SEC)


def test_requests_are_made_in_a_sandbox(box):
    apply(box, PROBED)
    for unit in (HANGS, PROBER.format("mixed")):
        box.run("systemd-analyze", "security", "--threshold=20", unit)

    # the service itself, and the child that waits for the answer
    found = agent.until(lambda: len(found := processes_of(box, HANGS)) == 2 and found, LONG_SEC)
    pid = box.run("podman", "inspect", "--format={{.State.Pid}}", "web_hangs").stdout.strip()
    assert namespace_of(box, pid) != namespace_of(box, 1)
    assert namespace_of(box, pid, "ipc") == namespace_of(box, 1, "ipc")  # hostIPC
    for each, status in found.items():
        assert {status[f"Cap{name}"].strip("0") for name in ("Prm", "Eff", "Amb")} == {""}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert "0" not in status["Uid"].split("\t") + status["Gid"].split("\t")
        assert namespace_of(box, each) == namespace_of(box, pid)

    # a command runs outside of it, and a container that is not alive starts again
    for name in ("mixed", "rpc"):
        check_restart(box, name)
    assert agent.is_active(box, COMMANDS)

    box.podslice("delete", "web")
    assert box.run("systemctl", "list-units", "--all", "--quiet", "podslice-*").stdout == ""


def test_pods_find_each_other_by_the_names_of_services(box):
    apply(box, NAMED)
    script = 'for name; do busybox wget -q -O - "http://$name:8080/name" || exit; done'
    asked = {
        "front-0_app": ("back", "back.default", "back.default.svc.cluster.local", "back-0.back"),
        "back-0_app": ("front", "front.default.svc"),
    }
    for container, names in asked.items():
        ask = ("podman", "exec", container, "sh", "-c", script, "sh", *names)
        answers = box.run(*ask).stdout.split()
        assert answers == [name.partition(".")[0].removesuffix("-0") for name in names]
    resolver = box.run(
        "podman", "exec", "back-0_app", "cat", "/etc/resolv.conf"
    ).stdout.splitlines()
    assert {"search dns.podman example.com", "options ndots:2"} <= {*resolver}
    # a resolver that a pod states is asked by that of podman
    servers = box.run("sh", "-c", "cat /run/containers/networks/aardvark-dns/*-default").stdout
    assert servers.count("192.0.2.1") == 1
    plan = box.podslice("plan", "-f", "/web.yaml", "--start", check=False)
    assert (plan.exit_code, plan.stderr) == (0, ""), plan.stdout

    box.podslice("delete", "front-0", "back-0")
    assert box.run("podman", "network", "ls", "--format={{.Name}}").stdout == "podman\n"
    patterns = ("front*", "back*", "podslice-*")
    listed = box.run("systemctl", "list-units", "--all", "--plain", "--no-legend", *patterns)
    assert listed.stdout == ""
    assert box.run("find", "/etc/containers/systemd", "-type", "f").stdout == ""


@pytest.fixture
def node(box):
    """The machine with an agent that keeps containers, and a manifest."""
    yield from with_agent(box)


@pytest.fixture
def vm_node(clean_podman_vm):
    """The same in the virtual machine, where the kernel counts the processes of a pod."""
    yield from with_agent(clean_podman_vm)


def with_agent(box):
    agent.begin(box)
    box.put(OPTIONS, KEEPS.format(ENOUGH))
    agent.put(box, "web", KEPT)
    agent.start(box)
    yield box
    agent.remove(box)
    box.run("systemctl", "stop", "podslice-containers-*")
    box.run("rm", OPTIONS)


def instances(node):
    """Return the invocation of each service of the pod that is active."""
    properties = "--property=Id,ActiveState,InvocationID"
    shown = node.run("systemctl", "show", properties, POD, APP, SIDE).stdout.strip()
    units = [dict(line.split("=") for line in each.split("\n")) for each in shown.split("\n\n")]
    return {each["Id"]: each["InvocationID"] for each in units if each["ActiveState"] == "active"}


def until_all_run(node):
    return agent.until(lambda: len(found := instances(node)) == 3 and found, LONG_SEC)


def evict_below(node, threshold):
    """Change the configuration, without the check that precedes a reload."""
    node.put(OPTIONS, KEEPS.format(threshold))
    agent.hang_up(node)


def test_the_agent_keeps_the_containers_of_a_manifest(node):
    first = until_all_run(node)
    assert enforced(node, GROUP, "memory.max") == str(256 * MI)
    assert enforced(node, f"{GROUP}/{APP}", "memory.max") == str(64 * MI)
    assert enforced(node, f"{GROUP}/{SIDE}", "memory.max") == str(32 * MI)

    # only the container that has changed restarts
    changed = KEPT.replace("name: app,", f"name: app, args: [sh, -c, '{WAIT}'],")
    agent.put(node, "web", changed)
    agent.until(lambda: instances(node).get(APP, first[APP]) != first[APP], LONG_SEC)
    second = instances(node)
    assert second == first | {APP: second[APP]}

    # a new agent applies new limits, and restarts nothing
    node.run("systemctl", "stop", agent.UNIT)
    changed = changed.replace("32Mi", "48Mi")
    agent.put(node, "web", changed)
    node.run("systemctl", "start", agent.UNIT)
    agent.until(lambda: f"MemoryMax={48 * MI}" in node.get(FILE).decode(), LONG_SEC)
    assert enforced(node, f"{GROUP}/{SIDE}", "memory.max") == str(48 * MI)
    assert instances(node) == second

    node.run("rm", f"{agent.MANIFESTS}/web.yaml")
    agent.until(lambda: not exists(node, FILE), LONG_SEC)
    assert instances(node) == {}
    assert node.run("podman", "ps", "--all", "--quiet").stdout == ""
    assert [each["MESSAGE"] for each in agent.events(node, "step-failed")] == []


def test_a_pod_that_fills_its_volume_is_evicted(node):
    until_all_run(node)
    podman.measure_volumes_often(node)
    full = f"sh, -c, 'dd if=/dev/zero of=/data/file bs=1M count=2; {WAIT}'"
    app = f"name: app, command: [{full}], volumeMounts: [{{name: data, mountPath: /data}}],"
    volumes = "  volumes: [{name: data, emptyDir: {sizeLimit: 1Mi}}]\n"
    agent.put(node, "web", KEPT.replace("name: app,", app) + volumes)
    evicted = 'evicted: Usage of EmptyDir volume "data" exceeds the limit "1Mi"'
    agent.until(lambda: evicted in node.podslice("status", check=False).stdout)
    agent.until(lambda: not exists(node, FILE))
    (event,) = agent.until(lambda: agent.all_events(node, "pod-evicted"))
    assert event["PODSLICE_SIGNAL"] == "emptydirfs.limit"
    agent.until(lambda: node.run("podman", "ps", "--all", "--quiet").stdout == "")
    # a manifest with other containers is the same for the policy
    agent.put(node, "web", KEPT)
    agent.until_quiet(node)
    assert instances(node) == {}
    node.podslice("readmit", "web")
    until_all_run(node)


def test_an_evicted_pod_is_stopped(vm_node):
    """By the agent; that it starts again is tested above, where that takes a tenth of the time."""
    node = vm_node
    until_all_run(node)
    assert kernel(node, GROUP, "memory.max") == str(256 * MI)
    assert kernel(node, f"{GROUP}/{SIDE}", "memory.max") == str(32 * MI)
    evict_below(node, SHORT)
    (event,) = agent.until(lambda: agent.events(node, "pod-evicted"))
    assert event["PODSLICE_POD"] == "default/web"
    agent.until(lambda: not exists(node, FILE), LONG_SEC)
    assert instances(node) == {}


def test_the_remedy_for_a_missing_slice_starts_the_containers(box):
    apply(box, KEPT)
    box.run("systemctl", "stop", SLICE)
    status = json.loads(box.podslice("status", "-o", "json", check=False).stdout)
    (problem,) = status["problems"]
    assert problem["kind"] == "unit-missing"
    commands = [part.rpartition(": ")[2] for part in problem["hint"].split("; ")]
    assert commands == ["podslice apply", f"systemctl start {POD}"]
    for command in commands:
        box.run(*command.split())
    box.run("systemctl", "start", APP, SIDE)  # waits for their jobs
    assert rows(box) == {POD: "podman", "app": "active", "side": "active"}
    assert enforced(box, GROUP, "memory.max") == str(256 * MI)

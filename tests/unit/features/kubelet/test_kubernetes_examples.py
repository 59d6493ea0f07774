"""The manifests of examples/kubernetes are valid, and agree with each other and the agent's options."""

import shlex
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from tests.cases.tables import cases

pytest.importorskip("fastjsonschema")

import fastjsonschema

from podslice.cli.app import command_of
from podslice.features.kubelet.agent import level_routes
from podslice.features.kubelet.api import read_kubeconfig
from podslice.features.kubelet.pods import parse_pod_list
from podslice.model.config import PodsFrom
from tests.configuration import load_config
from tests.unit.features.kubelet.kubernetes_schemas import KINDS, VERSIONS, validator

ROOT = Path(__file__).resolve().parents[4]
EXAMPLE = ROOT / "examples/kubernetes"
CONTAINERFILE = ROOT / "packaging/container/Containerfile"
MOUNTED = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def documents(path):
    return [each for each in yaml.safe_load_all((EXAMPLE / path).read_text()) if each]


def of_kind(kind, path):
    (found,) = (each for each in documents(path) if each["kind"] == kind)
    return found


@pytest.fixture
def pod():
    return of_kind("DaemonSet", "daemonset.yaml")["spec"]["template"]


@pytest.fixture
def agent(pod):
    (container,) = pod["spec"]["containers"]
    return container


@pytest.fixture
def config():
    return of_kind("ConfigMap", "config.yaml")["data"]


def test_the_kustomizations_name_every_file():
    base = of_kind("Kustomization", "kustomization.yaml")
    named = {*base["resources"], "kustomization.yaml", "README.md", "pod.yaml", *COMPONENTS}
    assert named == {path.name for path in EXAMPLE.iterdir()}
    assert [each["name"] for each in base["images"]] == ["podslice"]
    assert "components" not in base
    for name in COMPONENTS:
        component = of_kind("Component", f"{name}/kustomization.yaml")
        patches = (each["path"] for each in component.get("patches", ()))
        named = {*component["resources"], *patches, "kustomization.yaml"}
        assert named == {path.name for path in (EXAMPLE / name).iterdir()}


COMPONENTS = ("monitoring", "nodes-proxy")


def rights(path):
    """Return what a file permits the service account of the agent, and nothing else."""
    role, binding = of_kind("ClusterRole", path), of_kind("ClusterRoleBinding", path)
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    account = of_kind("ServiceAccount", "rbac.yaml")["metadata"]
    assert {key: subject[key] for key in ("name", "namespace")} == account
    return {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_only_a_component_permits_commands_in_containers():
    read = {(f"nodes/{name}", "get") for name in ("metrics", "pods", "configz")}
    assert rights("rbac.yaml") == read
    assert rights("nodes-proxy/rbac.yaml") == {("nodes/proxy", "get")}


def applied():
    """Yield all objects that `kubectl apply -k` sends, with the component and without it."""
    for file in sorted(EXAMPLE.glob("**/*.yaml")):
        if file.name not in {"kustomization.yaml", "proxy.yaml"}:
            yield from documents(file.relative_to(EXAMPLE))
    merged = deepcopy(of_kind("DaemonSet", "daemonset.yaml"))
    patch = of_kind("DaemonSet", "monitoring/proxy.yaml")
    assert patch["metadata"] == {
        key: merged["metadata"][key] for key in ("name", "namespace")
    }  # it is found by these
    merged["spec"]["template"]["spec"]["containers"] += patch["spec"]["template"]["spec"][
        "containers"
    ]
    yield merged


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_every_object(version):
    found = {}
    for value in applied():
        if value["kind"] != "PodMonitor":
            validator(version)({value["kind"]: value})
            found.setdefault(value["kind"], []).append(value)
    assert found.keys() == KINDS.keys()
    assert len(found["DaemonSet"]) == 2


@cases
def test_kubernetes_refuses_other_objects(path, value):
    daemonset = of_kind("DaemonSet", "daemonset.yaml")
    *parents, last = path.split(".")
    at = daemonset
    for key in parents:
        at = at[int(key) if key.isdecimal() else key]
    at[last] = value
    with pytest.raises(fastjsonschema.JsonSchemaException):
        validator(VERSIONS[-1])({"DaemonSet": daemonset})


def test_the_options_of_the_agent_exist(agent):
    verb, *options = agent["args"]
    command = command_of(verb)
    known = {name for parameter in command.params for name in parameter.opts}
    names = {option.partition("=")[0] for option in options}
    assert {"--kubelet", "--kubeconfig", "--kubelet-ca"} == names
    assert names <= known
    assert "--restore" in known  # in the README


def test_the_configuration_is_valid(config, tmp_path):
    path = tmp_path / "etc/podslice/podslice.toml"
    path.parent.mkdir(parents=True)
    path.write_text(config["podslice.toml"])
    found = load_config(root=tmp_path)
    assert (found.pods_from, found.allow_kubelet_slices) == (PodsFrom.KUBELET, True)
    assert found.listen == "127.0.0.1:9469"


def test_the_kubeconfig_has_the_token_of_the_service_account(config, tmp_path):
    """A ConfigMap and a token are links to directories that are replaced as a whole."""
    data = tmp_path / "..1"
    data.mkdir()
    (tmp_path / "..data").symlink_to("..1")
    text = config["kubeconfig"]
    assert MOUNTED in text
    (data / "kubeconfig").write_text(text.replace(MOUNTED, str(tmp_path / "token")))
    (data / "token").write_text(f"{tmp_path.name}\n")
    for name in ("kubeconfig", "token"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    assert read_kubeconfig(tmp_path / "kubeconfig").token == tmp_path.name


def test_the_agent_has_no_privileges(pod, agent):
    security = agent["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert (security["runAsUser"], security["privileged"]) == (0, False)
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert not {"hostPID", "hostIPC"} & pod["spec"].keys()
    writable = {each["name"] for each in agent["volumeMounts"] if not each.get("readOnly")}
    assert writable == {"records"}
    assert [each["name"] for each in agent["volumeMounts"]] == [
        each["name"] for each in pod["spec"]["volumes"]
    ]


def test_mounts_are_what_the_agent_reads(agent, pod):
    mounts = {each["mountPath"] for each in agent["volumeMounts"]}
    options = dict(each.split("=", 1) for each in agent["args"][1:])
    assert str(Path(options["--kubeconfig"]).parent) in mounts
    assert options["--kubelet-ca"] in mounts
    assert {"/run/dbus", "/sys/fs/cgroup", "/run/podslice/kubelet"} <= mounts
    name = pod["spec"]["serviceAccountName"]
    assert of_kind("ServiceAccount", "rbac.yaml")["metadata"]["name"] == name
    (subject,) = of_kind("ClusterRoleBinding", "rbac.yaml")["subjects"]
    assert subject["name"] == name


def test_the_proxy_serves_what_the_agent_does(agent):
    template = of_kind("DaemonSet", "monitoring/proxy.yaml")["spec"]["template"]
    (proxy,) = template["spec"]["containers"]
    assert "--upstream=http://127.0.0.1:9469/" in proxy["args"]
    probe = agent["readinessProbe"]["httpGet"]
    assert (probe["host"], probe["port"], probe["path"]) == ("127.0.0.1", 9469, "/healthz")
    (port,) = proxy["ports"]
    monitor = of_kind("PodMonitor", "monitoring/podmonitor.yaml")["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] == port["name"]
    labels = of_kind("DaemonSet", "daemonset.yaml")["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"] == labels


def test_the_probes_ask_paths_of_the_agent(agent, config):
    """A liveness probe at /healthz would restart an agent whose kubelet cannot be reached."""
    paths = {}
    for kind in ("readinessProbe", "livenessProbe"):
        probe = agent[kind]["httpGet"]
        assert f'listen = "{probe["host"]}:{probe["port"]}"' in config["podslice.toml"]
        paths[kind] = probe["path"]
    assert paths == {"readinessProbe": "/healthz", "livenessProbe": "/livez"}
    assert set(paths.values()) <= level_routes(lambda: None).keys()


def test_the_example_has_a_pod_level():
    value = documents("pod.yaml")[0]
    value["metadata"]["uid"] = "0000-ide"
    text = yaml.safe_dump({"kind": "PodList", "apiVersion": "v1", "items": [value]})
    (pod,) = parse_pod_list(text.encode(), "pod.yaml")
    assert pod.has_own_level
    assert pod.pod.resources.limits == {"cpu": 3000, "memory": 8 * 2**30 * 1000}


def test_the_image_starts_the_agent_without_a_shell():
    lines = CONTAINERFILE.read_text().splitlines()
    steps = dict(line.split(" ", 1) for line in lines if line and line[0].isupper())
    assert steps["ENTRYPOINT"] == '["/usr/bin/podslice"]'
    assert steps["CMD"] == '["agent"]'
    source, target = shlex.split(steps["COPY"])
    assert (source, target) == ("podslice_*_all.deb", "/tmp/podslice.deb")

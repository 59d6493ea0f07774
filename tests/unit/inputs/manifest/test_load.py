import json
from dataclasses import replace

import pytest

from podslice.errors import InputError, Severity
from podslice.inputs.budget import LIMITS, Budget, BudgetItem
from podslice.inputs.manifest.fields import API_VERSIONS
from podslice.inputs.manifest.load import format_manifest, load_pods, parse_manifest
from podslice.model.config import Validate
from podslice.model.pod import Container, ContainerKind, MemoryVolume, Pod, default_uid
from podslice.model.resources import Resources
from tests.cases.tables import cases

APP = "containers: [{name: app}]"


def load(text, *, namespace=None, validate=Validate.STRICT):
    return load_pods(["-"], namespace=namespace, stdin=text.encode, validate=validate)


def load_one(spec, *, metadata="name: web"):
    loaded = load(f"apiVersion: v1\nkind: Pod\nmetadata: {{{metadata}}}\nspec:\n{spec}")
    assert not loaded.problems
    (pod,) = loaded.pods
    return pod


def warnings(loaded):
    return [p for p in loaded.all_problems if p.severity is Severity.WARNING]


def indent(text, by):
    return "".join(f"{' ' * by}{line}\n" for line in text.strip("\n").splitlines())


def test_pod_with_all_supported_fields():
    pod = load_one(
        indent(
            """
containers:
- name: app
  image: docker.io/library/nginx
  env: 5
  resources:
    requests: {cpu: 250m, memory: 64Mi}
    limits: {cpu: "1", memory: 128Mi, hugepages-2Mi: 4Mi, example.com/gpu: 1}
    claims: []
- name: log
initContainers:
- name: setup
  resources: {limits: {cpu: 0.1}}
- name: proxy
  restartPolicy: Always
  resources: {requests: {memory: 1e6}}
ephemeralContainers: [{name: debug}]
resources: {limits: {cpu: 2, memory: 1.5Gi}}
overhead: {memory: 10M}
priority: -7
terminationGracePeriodSeconds: 5
volumes:
- {name: config, configMap: {name: web}}
- {name: cache, emptyDir: {medium: Memory, sizeLimit: 64Mi}}
- {name: free, emptyDir: {medium: Memory, mode: 448}}
- {name: disk, emptyDir: {sizeLimit: 1Gi}}
- {name: also-disk, emptyDir: {medium: ""}}
- {name: nothing, emptyDir: }
""",
            2,
        ),
        metadata="name: web, namespace: shop, uid: 0a1b-2c, labels: {a: b}",
    )
    assert pod == Pod(
        name="web",
        namespace="shop",
        uid="0a1b-2c",
        containers=(
            Container(
                name="app",
                where="spec.containers[0]",
                resources=Resources(
                    requests={"cpu": 250, "memory": 64 * 2**20 * 1000},
                    limits={
                        "cpu": 1000,
                        "memory": 128 * 2**20 * 1000,
                        "hugepages-2Mi": 4 * 2**20 * 1000,
                        "example.com/gpu": 1000,
                    },
                ),
            ),
            Container(name="log", where="spec.containers[1]"),
            Container(
                name="setup",
                kind=ContainerKind.INIT,
                where="spec.initContainers[0]",
                resources=Resources(limits={"cpu": 100}),
            ),
            Container(
                name="proxy",
                kind=ContainerKind.SIDECAR,
                where="spec.initContainers[1]",
                resources=Resources(requests={"memory": 10**9}),
            ),
        ),
        resources=Resources(limits={"cpu": 2000, "memory": 3 * 2**29 * 1000}),
        overhead={"memory": 10**10},
        priority=-7,
        grace_period_sec=5,
        volumes=(
            MemoryVolume(name="cache", size_bytes=64 * 2**20, where="spec.volumes[1]"),
            MemoryVolume(name="free", where="spec.volumes[2]"),
        ),
        where="stdin",
    )


@cases
def test_amounts_are_read_from_their_text(text, milli):
    """0.1 is exactly a tenth; fractions of a thousandth are rounded up.

    Source: Kubernetes, quantity.go, ParseQuantity.
    """
    for value in (text, f"!!float {text}", f"!!str {text}"):
        pod = load_one(f"  containers: [{{name: app, resources: {{limits: {{cpu: {value}}}}}}}]\n")
        assert pod.containers[0].resources.limits == {"cpu": milli}
        assert pod.is_valid


@pytest.mark.parametrize(
    ("text", "milli"), [("125.5m", "126m"), ("0.0001", "1m"), ("2u", "1m"), ("1.2345", "1235m")]
)
def test_an_amount_that_is_rounded_up_gives_a_warning(text, milli):
    pod = load_one(f"  containers: [{{name: app, resources: {{requests: {{cpu: {text}}}}}}}]\n")
    (problem,) = pod.problems
    assert problem.severity is Severity.WARNING
    assert problem.where == "stdin: spec.containers[0].resources.requests[cpu]"
    assert problem.message == f"'{text}' is not a whole number of thousandths"
    assert problem.hint == f"it is rounded up to {milli}"


@pytest.mark.parametrize("text", ["125m", "0.125", "1e-3", "1Gi", "0.5Gi"])
def test_an_amount_that_is_kept_gives_no_warning(text):
    pod = load_one(f"  containers: [{{name: app, resources: {{requests: {{cpu: {text}}}}}}}]\n")
    assert pod.problems == ()


def test_json_numbers_are_read_from_their_text():
    text = (
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "app",'
        ' "resources": {"limits": {"cpu": 0.1, "memory": 9223372036854775807}}}]}}'
    )
    (pod,) = load(text).pods
    assert pod.containers[0].resources.limits == {"cpu": 100, "memory": (2**63 - 1) * 1000}


@cases
def test_null_and_empty_are_not_stated(spec):
    pod = load_one(spec)
    assert pod.problems == ()
    assert not pod.resources
    assert not pod.containers[0].resources


def test_null_amount_is_ignored_with_a_warning():
    pod = load_one("  containers: [{name: app, resources: {limits: {cpu: , memory: 1Gi}}}]\n")
    assert set(pod.containers[0].resources.limits) == {"memory"}
    (problem,) = pod.problems
    assert problem.severity is Severity.WARNING
    assert problem.where == "stdin: spec.containers[0].resources.limits[cpu]"


def test_pod_with_errors_has_its_valid_fields():
    pod = load_one(
        indent(
            """
containers:
- name: app
  resources: {limits: {cpu: 2Gii, memory: 1Gi}, requests: none}
- 5
- name: log
priority: 3
""",
            2,
        )
    )
    assert [(c.name, c.where) for c in pod.containers] == [
        ("app", "spec.containers[0]"),
        ("log", "spec.containers[2]"),
    ]
    assert pod.containers[0].resources == Resources(limits={"memory": 2**30 * 1000})
    assert pod.priority == 3
    assert [problem.where for problem in pod.problems] == [
        "stdin: spec.containers[0].resources.requests",
        "stdin: spec.containers[0].resources.limits[cpu]",
        "stdin: spec.containers[1]",
    ]
    assert not pod.is_valid


def test_message_is_that_of_the_design():
    pod = load_one("  containers: [{name: a}, {name: b, resources: {limits: {memory: 2Gii}}}]\n")
    (problem,) = pod.problems
    assert str(problem) == (
        "stdin: spec.containers[1].resources.limits[memory]: '2Gii' is not a quantity;"
        " write 2Gi (2^30) or 2G (10^9)"
    )


@cases
def test_misspelled_field_is_an_error(spec, where, hint):
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{{spec}}}\n"
    for validate, severity in (
        (Validate.STRICT, Severity.ERROR),
        (Validate.WARN, Severity.WARNING),
    ):
        loaded = load(text, validate=validate)
        (problem,) = loaded.all_problems
        assert (problem.where, problem.hint) == (f"stdin: spec.{where}", hint)
        assert problem.severity is severity
        assert loaded.pods[0].is_valid is (validate is Validate.WARN)
    assert load(text, validate=Validate.IGNORE).all_problems == ()


@cases
def test_fields_of_kubernetes_that_podslice_does_not_read_are_silent(spec):
    status = "status: {anything: 1}"
    loaded = load(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{{spec}}}\n{status}\n"
    )
    assert loaded.all_problems == ()


UNKNOWN = """
apiVersion: apps/v1
kind: Deployment
x-common: &common {image: a}
metadata: {name: web, labels: {any: key}, annotations: {any/key: x}}
spec:
  selector: {matchLabels: {any: key}}
  template:
    metadata: {label: {a: b}, containers: []}
    spec:
      nodeSelector: {any: key}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms: [{matchExpression: []}]
      volumes:
      - {name: d, downwardAPI: {items: [{path: a, fieldRef: {filedPath: b}}]}}
      - {name: p, projected: {sources: [{secret: {name: a, item: []}}]}}
      containers:
      - name: app
        env: [{name: A, vale: b}]
        hostNetwork: true
        emptyDir: {}
        mem: 64Mi
        request: {cpu: 1}
        resources: {request: {cpu: 1}, limits: {memory: 64Mi}, limit: {memory: 64Mi}}
        frobnicate: 1
"""


def test_unknown_fields_are_found_everywhere_and_all_at_once():
    """The last resort of kubectl, `--validate=false`, is `--validate=ignore` or `warn`."""
    found = {p.where.removeprefix("stdin: "): p.hint for p in load(UNKNOWN).all_problems}
    spec, remove = "spec.template.spec", "remove it, or ignore it with --set validate=warn"
    assert found == {
        "x-common": remove,
        "spec.template.metadata.label": "write labels",
        "spec.template.metadata.containers": "it belongs under spec.template.spec",
        f"{spec}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".nodeSelectorTerms[0].matchExpression": "write matchExpressions",
        f"{spec}.volumes[0].downwardAPI.items[0].fieldRef.filedPath": "write fieldPath",
        f"{spec}.volumes[1].projected.sources[0].secret.item": "write items",
        f"{spec}.containers[0].env[0].vale": "write value",
        f"{spec}.containers[0].hostNetwork": f"it belongs under {spec}",
        f"{spec}.containers[0].emptyDir": f"it belongs under {spec}.volumes[…]",
        f"{spec}.containers[0].mem": "write memory under resources.limits or resources.requests",
        f"{spec}.containers[0].request": "write requests under resources",
        f"{spec}.containers[0].frobnicate": remove,
        f"{spec}.containers[0].resources.request": "write requests",
        f"{spec}.containers[0].resources.limit": "merge it into limits",
    }
    assert all(p.message.startswith("unknown field '") for p in load(UNKNOWN).all_problems)


@cases
def test_unknown_fields_of_lists_and_data(text, where, hint):
    (problem,) = (p for p in load(text).problems if p.severity is Severity.ERROR)
    assert (problem.where, problem.hint) == (f"stdin: {where}", hint)


@pytest.mark.parametrize("validate", Validate)
def test_a_duplicate_key_is_an_error_whatever_unknown_fields_are(validate):
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a, name: b}}\nspec: {{{APP}}}\n"
    (problem,) = load(text, validate=validate).all_problems
    assert (problem.severity, problem.message) == (Severity.ERROR, "duplicate key 'name'")


ANNOTATED = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {podslice.io/memory-high: 64Mi}}
spec:
  template:
    metadata:
      annotations:
        podslice.io/memory-hihg: 64Mi
        podslice.io/resources: '{"limit": {"memory": "64Mi"}}'
    spec: {containers: [{name: app}]}
"""


def test_annotations_that_would_have_no_effect_are_errors():
    at = "spec.template.metadata.annotations"
    for validate in (Validate.STRICT, Validate.WARN):
        loaded = load(ANNOTATED, validate=validate)
        assert {(p.where.removeprefix("stdin: "), p.hint) for p in loaded.all_problems} == {
            ("metadata.annotations[podslice.io/memory-high]", f"it belongs under {at}"),
            (f"{at}[podslice.io/memory-hihg]", "write podslice.io/memory-high"),
            (f"{at}[podslice.io/resources].limit", "write limits"),
        }
        assert loaded.pods[0].is_valid is (validate is Validate.WARN)
    assert load(ANNOTATED, validate=Validate.IGNORE).all_problems == ()


@cases
def test_the_version_of_a_kind(version, kind, problem):
    """Source: kubectl, "no matches for kind "Pod" in version "v2"" and "Object 'apiVersion' is missing"."""
    spec = f"spec: {{{APP}}}" if kind == "Pod" else f"spec: {{template: {{spec: {{{APP}}}}}}}"
    text = f"kind: {kind}\nmetadata: {{name: web}}\n{spec}\n{version}\n"
    for validate in Validate:
        (found,) = load(text, validate=validate).all_problems
        assert str(found) == f"stdin: apiVersion: {problem}"
        assert found.severity is Severity.ERROR


def test_the_items_of_a_list_have_a_version_of_their_own():
    pod = f"metadata: {{name: web}}, spec: {{{APP}}}"
    (found,) = load(f"apiVersion: v1\nkind: List\nitems: [{{kind: Pod, {pod}}}]\n").all_problems
    assert found.where == "stdin: items[0].apiVersion"
    assert load(f"apiVersion: v1\nkind: PodList\nitems: [{{{pod}}}]\n").all_problems == ()
    (found, _) = load(f"kind: PodList\nitems: [{{{pod}}}]\n").all_problems
    assert str(found) == "stdin: apiVersion: the apiVersion is missing; add 'apiVersion: v1'"


@cases
def test_priority(spec, expect):
    """Source: Kubernetes, pkg/apis/scheduling/types.go."""
    pod = load_one(f"  {APP}\n  {spec}\n")
    assert (pod.priority, pod.problems) == (expect, ())


def test_unknown_priority_class_gives_a_warning():
    pod = load_one(f"  {APP}\n  priorityClassName: gold\n")
    (problem,) = pod.problems
    assert (pod.priority, problem.severity) == (0, Severity.WARNING)


def template(kind, fields="", metadata="name: web"):
    return (
        f"apiVersion: {API_VERSIONS[kind]}\nkind: {kind}\nmetadata: {{{metadata}}}\n"
        f"spec: {{{fields} template: {{metadata: {{name: other}}, spec: {{{APP}}}}}}}\n"
    )


@cases
def test_workloads(kind, fields, names):
    loaded = load(template(kind, fields, metadata="name: web, namespace: shop, uid: not-the-pods"))
    assert loaded.all_problems == ()
    assert [pod.name for pod in loaded.pods] == names
    for pod in loaded.pods:
        assert pod.uid == default_uid("shop", pod.name)
        assert pod.spec_where == "spec.template.spec"
        assert pod.containers[0].where == "spec.template.spec.containers[0]"


def test_cron_job_and_pod_template():
    cron = f"kind: CronJob\napiVersion: batch/v1\nmetadata: {{name: a}}\nspec: {{jobTemplate: {{spec: {{template: {{spec: {{{APP}}}}}}}}}}}\n"
    pods = load(
        f"{cron}---\napiVersion: v1\nkind: PodTemplate\nmetadata: {{name: b}}\ntemplate: {{spec: {{{APP}}}}}\n"
    ).pods
    assert [(pod.name, pod.spec_where) for pod in pods] == [
        ("a", "spec.jobTemplate.spec.template.spec"),
        ("b", "template.spec"),
    ]


def test_problems_of_a_template_are_reported_once():
    loaded = load(template("Deployment", "replicas: 3,").replace("name: app", "name: App"))
    assert len(loaded.pods) == 3
    assert not any(pod.is_valid for pod in loaded.pods)
    assert len(loaded.all_problems) == 1


def test_template_without_replicas_is_checked_too():
    loaded = load(template("Deployment", "replicas: 0,").replace("name: app", "name: App"))
    assert [p.where for p in loaded.problems] == ["stdin: spec.template.spec.containers[0].name"]


@pytest.mark.parametrize("kind", ["List", "PodList"])
def test_list(kind):
    pod = f"{{apiVersion: v1, kind: Pod, metadata: {{name: NAME}}, spec: {{{APP}}}}}"
    first, second = pod.replace("NAME", "a"), pod.replace("NAME", "b")
    inner = f"{{apiVersion: v1, kind: List, items: [{second}]}}"
    loaded = load(f"apiVersion: v1\nkind: {kind}\nitems:\n- {first}\n- {inner}\n")
    assert [(pod.name, pod.where, pod.spec_where) for pod in loaded.pods] == [
        ("a", "stdin", "items[0].spec"),
        ("b", "stdin", "items[1].items[0].spec"),
    ]
    assert loaded.pods[1].containers[0].where == "items[1].items[0].spec.containers[0]"


def test_items_of_a_typed_list_need_no_kind():
    (pod,) = load(
        f"apiVersion: v1\nkind: PodList\nitems: [{{metadata: {{name: a}}, spec: {{{APP}}}}}]\n"
    ).pods
    assert pod.is_valid


def test_several_documents_are_numbered():
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: NAME}}\nspec: {{{APP}}}\n"
    assert load(text.replace("NAME", "a")).pods[0].where == "stdin"
    both = load(f"---\n---\n{text.replace('NAME', 'a')}---\n{text.replace('NAME', 'b')}")
    assert [pod.where for pod in both.pods] == ["stdin[0]", "stdin[1]"]


@cases
def test_other_kinds_are_ignored_with_a_warning(text):
    loaded = load(text)
    assert (len(loaded.problems), loaded.pods) == (1, ())
    assert warnings(loaded)
    assert "are ignored" in loaded.problems[0].message


def test_one_bad_manifest_does_not_stop_the_rest():
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{{APP}}}\n"
    loaded = load(f"a: b\n---\n{text}---\nkind: Nonsense\n---\n{text.replace('a}', 'b}', 1)}")
    assert [pod.key for pod in loaded.pods if pod.is_valid] == ["default/a", "default/b"]
    assert [p.where for p in loaded.problems] == ["stdin[0]: kind", "stdin[2]: kind"]


def test_requested_namespace():
    """Source: kubectl: the namespace of the object does not match the namespace."""
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a%s}}\nspec: {{{APP}}}\n"
    assert load(pod % "", namespace="shop").pods[0].namespace == "shop"
    assert load(pod % ", namespace: shop", namespace="shop").pods[0].is_valid
    assert load(pod % ", namespace: ''", namespace="shop").pods[0].namespace == "shop"
    other = load(pod % ", namespace: bank", namespace="shop").pods[0]
    assert other.namespace == "bank"
    assert [p.where for p in other.problems] == ["stdin: metadata.namespace"]


def test_same_name_in_two_namespaces_is_not_a_duplicate():
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: %s}\nspec: {%s}\n"
    loaded = load("---\n".join(text % (n, APP) for n in ("x", "y")))
    assert loaded.all_problems == ()


def test_duplicates_across_files_are_errors_of_the_second_file(tmp_path):
    for name in ("b.yaml", "a.yaml"):
        (tmp_path / name).write_text(
            f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{{APP}}}\n"
        )
    first, second = load_pods([str(tmp_path)], stdin=lambda: b"").pods
    assert first.is_valid
    (problem,) = second.problems
    assert problem.where == f"{tmp_path}/b.yaml: metadata.name"
    assert f"{tmp_path}/a.yaml" in problem.message


def budget(**most):
    return Budget(
        limits={**LIMITS, **{BudgetItem[name.upper()]: number for name, number in most.items()}}
    )


def workloads(count, replicas, spec=APP):
    return "---\n".join(
        f"kind: Deployment\napiVersion: apps/v1\nmetadata: {{name: d{n}}}\n"
        f"spec: {{replicas: {replicas}, template: {{spec: {{{spec}}}}}}}\n"
        for n in range(count)
    )


@cases
def test_pods_containers_and_volumes_are_counted_for_every_replica(most, spec):
    ((what, number),) = most.items()
    text = workloads(2, 10, spec)
    loaded = load_pods(["-"], stdin=text.encode, budget=budget(**most))
    assert (len(loaded.pods), loaded.problems) == (20, ())
    loaded = load_pods(["-"], stdin=text.encode, budget=budget(**{what: number - 1}))
    assert loaded.pods == ()
    (problem,) = loaded.problems
    assert problem.where == "stdin"
    assert problem.message.startswith(f"there are more than {number - 1} {what}")


def test_all_files_have_one_budget(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.yaml").write_text(workloads(1, 10).replace("d0", name))
    loaded = load_pods([str(tmp_path)], stdin=bytes, budget=budget(pods=25))
    assert loaded.pods == ()
    assert [problem.where for problem in loaded.problems] == [f"{tmp_path}/c.yaml"]


def test_no_pod_is_created_beyond_the_budget(monkeypatch):
    made = []
    monkeypatch.setattr(
        "podslice.inputs.manifest.load.default_uid", lambda *names: made.append(names) or "0a"
    )
    load_pods(["-"], stdin=workloads(1, 1000).encode, budget=budget(pods=999))
    assert made == []


def test_reading_stops_at_a_number_of_problems():
    text = "---\na: 1\n" * 30
    assert len(load_pods(["-"], stdin=text.encode, budget=budget(problems=30)).problems) == 30
    problems = load_pods(["-"], stdin=text.encode, budget=budget(problems=29)).problems
    assert len(problems) == 30
    assert str(problems[-1]) == "stdin: there are more than 29 problems; the rest was not read"


def test_the_first_of_too_many_problems_are_reported():
    text = "---\n".join(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p{n}}}\nspec: {{containers: [{{name: A}}]}}\n"
        for n in range(30)
    )
    problems = load_pods(["-"], stdin=text.encode, budget=budget(problems=20)).problems
    assert [problem.where for problem in problems[:2]] == [
        "stdin[0]: spec.containers[0].name",
        "stdin[1]: spec.containers[0].name",
    ]
    assert problems[-1].message == "there are more than 20 problems"


def test_the_requests_and_limits_of_a_pod_are_limited():
    amounts = ",".join(f"x/k{n}: 1" for n in range(64))
    container = "{name: c%d, resources: {limits: {" + amounts + "}}}"
    spec = "containers: [" + ",".join(container % n for n in range(65)) + "]"
    (problem,) = (
        load(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{{spec}}}").pods[0].problems
    )
    assert problem.message == "the containers have more than 4,096 requests and limits"


def test_manifests_of_a_directory_are_read_by_name(tmp_path):
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: NAME}}\nspec: {{{APP}}}\n"
    for name in ("c.yml", "b.yaml", ".hidden.yaml", "notes.txt", "sub/d.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(pod.replace("NAME", path.stem.strip(".")))
    (tmp_path / "a.json").write_text(
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "app"}]}}'
    )
    (tmp_path / "empty.yaml").write_text("# switched off\n")
    loaded = load_pods([str(tmp_path)], stdin=lambda: b"")
    assert [pod.name for pod in loaded.pods] == ["a", "b", "c"]
    assert loaded.all_problems == ()


def test_standard_input_is_read_once():
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{{APP}}}\n".encode()
    loaded = load_pods(["-", "-"], stdin=lambda: text)
    assert [pod.name for pod in loaded.pods] == ["web"]
    assert len(loaded.problems) == 1


@cases
def test_manifest_survives_formatting(limits):
    pod = Pod(
        name="web",
        namespace="shop",
        uid="u-1",
        containers=(
            Container(name="app", where="spec.containers[0]", resources=Resources(requests=limits)),
            Container(name="a", kind=ContainerKind.SIDECAR, where="spec.initContainers[0]"),
            Container(name="b", kind=ContainerKind.INIT, where="spec.initContainers[1]"),
        ),
        resources=Resources(limits={**limits, "pid": 5000}),
        overhead=limits,
        priority=-1,
        grace_period_sec=0,
        volumes=(
            MemoryVolume(name="cache", size_bytes=2**20 + 1, where="spec.volumes[0]"),
            MemoryVolume(name="free", where="spec.volumes[1]"),
            MemoryVolume(name="zero", size_bytes=0, where="spec.volumes[2]"),
        ),
    )
    document = format_manifest(pod)
    assert replace(parse_manifest(document, "here"), where="") == pod
    assert replace(parse_manifest(json.loads(json.dumps(document)), "here"), where="") == pod


@cases
def test_odd_volumes_give_warnings(volume, where, message):
    pod = load_one(f"  containers: [{{name: app}}]\n  volumes: [{volume}]\n")
    (problem,) = pod.problems
    assert problem.severity is Severity.WARNING
    assert str(problem).startswith(f"stdin: spec.volumes[0].{where}: {message}")


@pytest.mark.parametrize("medium", ["Memory", ""])
def test_a_volume_of_thousandths_of_a_byte_is_an_error(medium):
    pod = load_one(
        "  containers: [{name: app}]\n"
        f"  volumes: [{{name: a, emptyDir: {{medium: '{medium}', sizeLimit: 64m}}}}]\n"
    )
    (problem,) = pod.problems
    assert str(problem) == (
        "stdin: spec.volumes[0].emptyDir.sizeLimit: '64m' is not a whole number of bytes; write"
        " 64Mi for mebibytes"
    )
    assert not pod.is_valid


@cases
def test_an_empty_pod_level_is_kept(resources, is_empty):
    pod = load_one(f"  containers: [{{name: app}}]\n  resources: {resources}\n")
    assert pod.has_empty_level == is_empty
    assert parse_manifest(format_manifest(pod), "here").has_empty_level == is_empty


def test_formatted_manifest_is_readable():
    pod = load_one(
        "  containers: [{name: app, resources: {limits: {cpu: 500m, memory: 1.5Gi}}}]\n",
        metadata="name: web, uid: u",
    )
    assert format_manifest(pod) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {
            "containers": [
                {"name": "app", "resources": {"limits": {"cpu": "500m", "memory": "1536Mi"}}}
            ]
        },
    }


@pytest.mark.parametrize(
    "document",
    [None, 5, [], {}, {"kind": "Pod"}, {"kind": "Service"}, {"kind": "List", "items": []}],
)
def test_document_without_a_valid_pod_is_rejected(document):
    with pytest.raises(InputError, match=r"^record"):
        parse_manifest(document, "record")

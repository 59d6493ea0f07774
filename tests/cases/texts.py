"""A manifest with each text that units have, and hostile texts for each of its fields."""

import json
import re

from podslice.features.quadlet.generate import generate
from podslice.features.quadlet.result import Options
from podslice.features.quadlet.workloads import read_workloads
from podslice.inputs.manifest.fields import Use, type_of
from podslice.inputs.manifest.load import Extent, load_pods
from podslice.inputs.scalars import read_text
from podslice.model.config import Validate
from podslice.model.grammar import ARGUMENT_BYTES_MAX
from podslice.policy.decide import decide
from tests.cases.quadlets import NODE
from tests.configuration import load_config

HOSTILE = {
    "empty": "",
    "an option": "--privileged",
    "a short option": "-v=/:/host",
    "an option with a space": "-v /:/host",
    "a dash": "-",
    "a line feed": "a\nb",
    "a section": "a\n[Service]\nExecStartPre=+/bin/touch /run/pwned",
    "a line feed at the end": "a\n",
    "a carriage return": "a\rb",
    "zero": "a\0b",
    "a tab": "a\tb",
    "an escape byte": "a\x1b[2Jb",
    "delete": "a\x7fb",
    "U+0080": "a\x80b",
    "a specifier": "a%nb",
    "a variable": "a$HOME-${HOME}",
    "a quotation mark": 'a"b',
    "a quotation mark at the beginning": '"a b"',
    "an apostrophe": "a'b",
    "a backslash": "a\\b",
    "a backslash at the end": "a\\",
    "an escape": "a\\x20b\\n",
    "a space": "a b",
    "spaces at the ends": " a ",
    "a semicolon": ";",
    "a semicolon within": "a ; b",
    "a comment": "#a",
    "a line separator": "a\u2028b",
    "a next line": "a\x85b",
    "no-break spaces at the ends": "\xa0a\xa0",
    "a bidi control": "a\u202eb",
    "a zero width space": "a\u200bb",
    "a byte order mark": "\ufeffa",
    "a letter of another alphabet": "\u0430",
    "a digit of another alphabet": "\u0661",
    "a full-width letter": "\uff41",
    "too long": "a" * (ARGUMENT_BYTES_MAX + 1),
    "256 characters": "a" * 256,
    "4096 characters": f"/{'a' * 4095}",
    "dot dot": "..",
    "a path with dot dot": "a/../../etc",
    "an absolute path with dot dot": "/a/../../etc",
    "the root": "/",
    "an absolute path": "/etc",
    "a path": "a/b",
    "a comma": "a,b",
    "a comma and an option of a mount": "a,type=bind,source=/etc",
    "an equals sign": "a=b",
    "a colon": "a:b",
    "a colon and an option of a volume": "/a:/b:rw",
    "a section only": "[Service]",
    "a unit": "a.image",
    "an upper case letter": "A",
    "an underscore": "a_b",
    "an unpaired surrogate": "a\ud800b",
    "a shell": "$(touch /run/pwned)`id`",
    "a glob": "*",
    "an address with a zone": "fe80::1%eth0",
    "an archive": "oci-archive:tmp",
}

CONFIG = load_config()

_PROBE = {
    "httpGet": {
        "port": 80,
        "path": "/healthy",
        "host": "localhost",
        "httpHeaders": [{"name": "Accept", "value": "text/plain"}],
    }
}
_EXEC = {"exec": {"command": ["check", "a"]}}
_TCP = {"tcpSocket": {"port": 80, "host": "localhost"}}
_GRPC = {"grpc": {"port": 80, "service": "shop.Cart"}}
_SECURITY = {
    "seccompProfile": {"type": "Localhost", "localhostProfile": "web.json"},
    "appArmorProfile": {"type": "Localhost", "localhostProfile": "web"},
    "seLinuxOptions": {"user": "user_u", "role": "role_r", "type": "type_t", "level": "s0"},
}
_SPEC = {
    "hostname": "front",
    "subdomain": "",
    "dnsPolicy": "None",
    "dnsConfig": {
        "nameservers": ["192.0.2.53"],
        "searches": ["example.com"],
        "options": [{"name": "ndots", "value": "2"}],
    },
    "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["db"]}],
    "securityContext": {**_SECURITY, "sysctls": [{"name": "net.core.somaxconn", "value": "1"}]},
    "volumes": [
        {"name": "host", "hostPath": {"path": "/srv"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "map", "configMap": {"name": "map", "optional": True}},
        {"name": "secret", "secret": {"secretName": "secret", "optional": True}},
        {
            "name": "both",
            "projected": {
                "sources": [
                    {
                        "configMap": {"name": "map", "optional": True},
                        "secret": {"name": "secret", "optional": True},
                    }
                ]
            },
        },
    ],
    "containers": [
        {
            "name": "app",
            "image": "docker.io/library/nginx:1",
            "command": ["run"],
            "args": ["a"],
            "workingDir": "/work",
            "env": [
                {"name": "A", "value": "1"},
                {
                    "name": "B",
                    "valueFrom": {"configMapKeyRef": {"name": "map", "key": "k", "optional": True}},
                },
                {
                    "name": "C",
                    "valueFrom": {"secretKeyRef": {"name": "secret", "key": "k", "optional": True}},
                },
            ],
            "envFrom": [
                {"prefix": "P_", "configMapRef": {"name": "map", "optional": True}},
                {"prefix": "Q_", "secretRef": {"name": "secret", "optional": True}},
            ],
            "ports": [{"containerPort": 80, "hostPort": 80, "name": "http", "hostIP": "127.0.0.1"}],
            "volumeMounts": [
                {"name": "host", "mountPath": "/host", "subPath": "part"},
                {"name": "claim", "mountPath": "/claim", "subPath": "part"},
                {"name": "claim", "mountPath": "/whole"},
            ],
            "livenessProbe": _PROBE,
            "readinessProbe": _PROBE,
            "startupProbe": _PROBE,
            "lifecycle": {"stopSignal": "SIGTERM", "postStart": _EXEC, "preStop": _EXEC},
            "securityContext": {
                **_SECURITY,
                "capabilities": {"add": ["NET_ADMIN"], "drop": ["CHOWN"]},
            },
        }
    ],
}
_DATA = [
    {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop"},
        "data": {"k": "djE="},
    }
    for kind, name in (("ConfigMap", "map"), ("Secret", "secret"))
]
"""The objects of the variables, in documents before the pod."""
_NAMES = {"metadata.name": "web", "metadata.namespace": "shop", "metadata.uid": "0a1b"}
_STEP = re.compile(r"([^.[\]]+)|\[]")


def texts_in(type_, path=""):
    """The path and the grammar, if there is one, of each text that is read of a type."""
    for row in type_of(type_).fields.values():
        place = f"{path}{row.name}{'[]' if row.bracket else ''}"
        if row.scalar is not None and row.scalar.read is read_text:
            yield place, row.scalar.grammar
        elif row.type and row.use is Use.KEPT and row.name != "initContainers":
            yield from texts_in(row.type, f"{place}.")


ALL_TEXTS = {
    **dict(texts_in("PodSpec")),
    **{path: each for path, each in texts_in("ObjectMeta", "metadata.") if each},
    "volumeClaimTemplates[].metadata.name": dict(texts_in("NamedMeta"))["name"],
}
GRAMMARS = {path: grammar for path, grammar in ALL_TEXTS.items() if grammar}
FIELDS = sorted(GRAMMARS)


def document(field=None, text=None, entry=0):
    """The manifest with a text in a field, of that entry of each list that has it."""
    spec = json.loads(json.dumps(_SPEC))
    probe = (field or "").split(".")[1:2]
    for step, action in (("Probe.exec.", _EXEC), (".tcpSocket.", _TCP), (".grpc.", _GRPC)):
        if field and step in field:
            spec["containers"][0][probe[0]] = json.loads(json.dumps(action))
    metadata = {**_NAMES, **({field: text} if field in _NAMES and text is not None else {})}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {name.partition(".")[2]: each for name, each in metadata.items()},
        "spec": spec,
    }
    if field and field.startswith("volumeClaimTemplates"):
        return _stateful_set(pod, text or "kept")
    if field and field.startswith("securityContext.") and "sysctls" not in field:
        del spec["containers"][0]["securityContext"][field.split(".")[1]]
    if field == "volumes[].name" and text is not None:
        spec["containers"][0]["volumeMounts"][0]["name"] = text
    if field and field not in _NAMES and text is not None:
        _put(spec, _STEP.findall(field), text, entry)
    return pod


def _stateful_set(pod, name):
    template = {"spec": pod["spec"]}
    claims = [{"metadata": {"name": name}}]
    spec = {"template": template, "volumeClaimTemplates": claims}
    metadata = {"name": "web", "namespace": "shop"}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}


def _put(value, steps, text, entry):
    step, *rest = steps
    if not step and rest:
        having = [each for each in value if _has(each, rest)]
        _put(having[min(entry, len(having) - 1)], rest, text, entry)
    elif rest:
        _put(value[step], rest, text, entry)
    else:
        value[step or 0] = text


def _has(value, steps):
    if not steps or not steps[0]:
        return True
    return steps[0] in value and _has(value[steps[0]], steps[1:])


def place(field):
    """A pattern of the addresses of a field."""
    path = re.escape(field).replace(r"\[\]", r"\[\d+]")
    if field == "volumes[].name":
        path = rf"(?:{path}|containers\[0]\.volumeMounts\[0]\.name)"
    top = "" if field.startswith("metadata.") else r"spec\."
    return rf"stdin\[2]: {top}{path}"


def load(pod, validate=Validate.STRICT):
    """The pods of a manifest, its workloads, and all errors."""
    data = "\n".join(map(json.dumps, (*_DATA, pod))).encode()
    loaded = load_pods(["-"], stdin=lambda: data, extent=Extent.WORKLOADS, validate=validate)
    workloads = read_workloads(loaded, ignored=frozenset({"subdomain"}))
    problems = [*loaded.all_problems, *workloads.problems]
    errors = [each for each in problems if each.severity == "error" and each.where != "--ignore"]
    return loaded, workloads, errors


def quadlets(loaded, workloads, options=None):
    """The quadlets of the only pod."""
    (pod,) = loaded.pods
    decided = decide(pod, NODE, CONFIG)
    return generate(decided, workloads.workloads[pod.key], options or Options())

"""The published schemas of Kubernetes, as far as the manifests of examples/kubernetes need them.

`kubernetes_schemas.json` has the strict schemas of two versions without their descriptions: the first
with every field of the manifests, and the newest. The package that contains all of them is large, so
that the part is written once, after a change of the kinds or of the package:

    .venv/bin/python -m tests.unit.features.kubelet.kubernetes_schemas
"""

import json
from functools import cache
from pathlib import Path

import fastjsonschema

from tests.unit.inputs.manifest.published_fields import download, references

FILE = Path(__file__).with_suffix(".json")
VERSIONS = ("1.30", "1.37")
KINDS = {
    **{name: f"io.k8s.api.core.v1.{name}" for name in ("ConfigMap", "Namespace", "Pod")},
    "ServiceAccount": "io.k8s.api.core.v1.ServiceAccount",
    "DaemonSet": "io.k8s.api.apps.v1.DaemonSet",
    **{f"ClusterRole{part}": f"io.k8s.api.rbac.v1.ClusterRole{part}" for part in ("", "Binding")},
}
KEPT = ("$ref", "additionalProperties", "enum", "items", "oneOf", "required", "type")


@cache
def validator(version):
    """Return a function that raises `JsonSchemaException` for an invalid value of `{KIND: OBJECT}`."""
    kinds = {kind: {"$ref": f"#/$defs/{name}"} for kind, name in KINDS.items()}
    schema = {"properties": kinds, "additionalProperties": False, "$defs": _read()[version]}
    return fastjsonschema.compile(schema)


@cache
def _read():
    return json.loads(FILE.read_text())


def shorten(schema):
    """Return what decides whether an object is valid."""
    if not isinstance(schema, dict):
        return schema
    found = {key: shorten(schema[key]) for key in KEPT if key in schema}
    if "oneOf" in schema:
        found["oneOf"] = [shorten(each) for each in schema["oneOf"]]
    if "properties" in schema:
        # no manifest has a status
        properties = {name: each for name, each in schema["properties"].items() if name != "status"}
        found["properties"] = {name: shorten(each) for name, each in properties.items()}
    return found


def needed(definitions):
    """Return the definitions of the kinds, and of everything in them."""
    found, waiting = {}, list(KINDS.values())
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = shorten(definitions[name])
            waiting += references(found[name])
    return {name: found[name] for name in sorted(found)}


def main():
    FILE.write_text("\n".join(_lines(download(VERSIONS))) + "\n")


def _lines(published):
    """Yield one line for each definition."""
    yield "{"
    for version, definitions in published.items():
        yield f'"{version}": {{'
        found = needed(definitions)
        for name, each in found.items():
            yield f'"{name}": {json.dumps(each)}{"," if name != max(found) else ""}'
        yield "}," if version != max(published) else "}"
    yield "}"


if __name__ == "__main__":
    main()

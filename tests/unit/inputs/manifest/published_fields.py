"""The fields of objects that hold pods, of the published schemas of Kubernetes.

`published_fields.json` has for each version the types, with their fields and the types of these. The
package of the schemas is large, so that this part is written once, after a change of the versions:

    .venv/bin/python -m tests.unit.inputs.manifest.published_fields
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")
VERSIONS = ("1.36", "1.37")
GROUPS = {
    "core": (
        "Pod",
        "PodList",
        "PodTemplate",
        "ReplicationController",
        "ConfigMap",
        "Secret",
        "Service",
    ),
    "apps": ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"),
    "batch": ("Job", "CronJob"),
}
PACKAGE = (
    "kubernetes-validate==1.37.0"
    " --hash=sha256:85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9\n"
)
MEMBER = "kubernetes_validate/kubernetes-json-schema/v{}.0-local-strict/_definitions.json"
ROOTS = [f"io.k8s.api.{group}.v1.{kind}" for group, kinds in GROUPS.items() for kind in kinds]


def read():
    """Return the fields of each type, by version."""
    return json.loads(FILE.read_text())


def fields_of(schema, definitions):
    """Return the fields of a type: the type of an object, `[Type]` of a list, or nothing."""
    found = {}
    for name, each in sorted(schema["properties"].items()):
        names = [] if name == "status" else list(references(each))
        objects = [one for one in names if "properties" in definitions[one]]
        is_list = "items" in each
        assert len(objects) <= 1
        assert not objects or not each.get("additionalProperties")
        (shown,) = [one.rpartition(".")[2] for one in objects] or [""]
        found[name] = f"[{shown}]" if shown and is_list else shown
    return found


def reachable(definitions):
    """Return the fields of the kinds, and of everything in them."""
    found, waiting = {}, list(ROOTS)
    while waiting:
        name = waiting.pop()
        schema = definitions[name]
        if name not in found and "properties" in schema:
            found[name] = fields_of(schema, definitions)
            stated = {key: each for key, each in schema["properties"].items() if key != "status"}
            waiting += references(list(stated.values()))
    short = {name.rpartition(".")[2]: fields for name, fields in found.items()}
    assert len(short) == len(found)
    return {name: short[name] for name in sorted(short)}


def references(schema):
    """Yield the names of the definitions that a schema refers to."""
    if isinstance(schema, list):
        for each in schema:
            yield from references(each)
    elif isinstance(schema, dict):
        if isinstance(found := schema.get("$ref"), str):
            yield found.rpartition("/")[2]
        for each in schema.values():
            yield from references(each)


def download(versions):
    """Return the definitions of each version, from the package."""
    with tempfile.TemporaryDirectory() as name:
        lock = Path(name) / "requirements.txt"
        lock.write_text(PACKAGE)
        command = ("-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "-d", name)
        subprocess.run((sys.executable, *command, "-r", str(lock)), check=True)
        (wheel,) = Path(name).glob("*.whl")
        with zipfile.ZipFile(wheel) as members:
            return {v: json.loads(members.read(MEMBER.format(v)))["$defs"] for v in versions}


def main():
    published = {version: reachable(each) for version, each in download(VERSIONS).items()}
    parts = (
        f'"{version}": {{\n'
        + ",\n".join(f'"{name}": {json.dumps(each)}' for name, each in types.items())
        + "\n}"
        for version, types in published.items()
    )
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()

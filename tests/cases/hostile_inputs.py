"""The hostile inputs: those of the tables in `hostile`, and those that are too long for a table.

A case of a table is a file: `text` is its content, or `value` is what replaces VALUE in the `text`
of the table; `encoding` is UTF-8 unless stated. Its `errors` must be reported: `at` is the address
after the file's name (absent: the file itself), `message` and `hint` are parts of its texts.

`python -m tests.cases.hostile_inputs DIRECTORY` writes the files.
"""

import sys
import tomllib
from pathlib import Path

TABLES = Path(__file__).parent / "hostile"
_POD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n"
_CONTAINER = f"{_POD}  containers:\n  - name: app\n"
_VOLUMES = _POD.replace("\n  name: web", " { name: web }") + "  containers: [{ name: app }]\n"
_LIST = "{apiVersion: v1, kind: List, items: ["
_WEB = "{kind: Pod, metadata: {name: web}, spec: {containers: [{name: app}]}}"
_KEYS = ", ".join(f"k{n}: 1" for n in range(300))
_RESOURCES = ", ".join(f"example.com/r{n}: 1" for n in range(70))
GENERATED = {
    "deep-flow.yaml": f"kind: Pod\nspec: {'[' * 2000}{']' * 2000}\n",
    "deep-block.yaml": "kind: Pod\nspec:\n" + "".join(f"{'  ' * n}- a:\n" for n in range(1, 80)),
    "deep.json": f'{{"kind": "Pod", "spec": {"[" * 100_000}{"]" * 100_000}}}\n',
    "merge-bomb.yaml": f"base: &base {{{_KEYS}}}\nall: &all\n"
    + "- {<<: *base}\n" * 300
    + f"kind: Pod\nmore: [{', '.join(['*all'] * 20)}]\n",
    "list-in-lists.yaml": f"{_LIST * 12}{_WEB}{']}' * 12}\n",
    "three-hundred-containers.yaml": f"{_POD}  containers:\n"
    + "".join(f"  - {{name: c{n}}}\n" for n in range(300)),
    "three-hundred-volumes.yaml": f"{_VOLUMES}  volumes:\n"
    + "".join(f"    - {{ name: v{n} }}\n" for n in range(300)),
    "seventy-resources.yaml": f"{_CONTAINER}    resources:\n      limits: {{{_RESOURCES}}}\n",
    "quantity-5000-digits.yaml": f"{_CONTAINER}    resources:\n      limits:\n"
    f"        memory: {'9' * 5000}\n",
    "replicas-huge.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n"
    f"  replicas: {'9' * 5000}\n  template: {{spec: {{containers: [{{name: app}}]}}}}\n",
}
"""The texts of cases whose table states none."""


def _read(path):
    """Yield the cases of a table: their name, content and errors."""
    table = tomllib.loads(path.read_text())
    for name, case in table["case"].items():
        text = case.get("text") or GENERATED.get(name, "")
        if "value" in case:
            text = table["text"].replace("VALUE", case["value"])
        assert case["reason"], name
        yield name, text.encode(case.get("encoding", "utf-8")), case["errors"]


CASES = [case for path in sorted(TABLES.glob("*.toml")) for case in _read(path)]
INPUTS = {name: content for name, content, _ in CASES}
"""The content of each file."""
ERRORS = {name: errors for name, _, errors in CASES}


def write_inputs(directory):
    """Write each input as a file."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in INPUTS.items():
        (directory / name).write_bytes(content)


if __name__ == "__main__":
    write_inputs(Path(sys.argv[1]))

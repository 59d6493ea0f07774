"""The directions of imports between packages, as CONTRIBUTING.md describes them."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "podslice"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()

CORE = {"errors", "model"}
MAY_IMPORT = {
    "errors": set(),
    "http_client": {"errors"},
    "files": set(),
    "metric_text": set(),
    "threads": set(),
    "programs": set(),
    "model": {"errors"},
    "policy": CORE,
    "plan": CORE,
    "quadlet": CORE,
    "inputs": CORE | {"files"},
    "kernel": CORE,
    "kubelet": CORE | {"http_client"},
    "systemd": CORE | {"files", "programs", "kernel"},
    "usage": CORE | {"policy", "kernel", "http_client"},
    "store": CORE | {"inputs", "files"},
    "reconcile": CORE | {"policy", "plan", "kernel", "systemd", "store", "usage", "threads"},
    "processes": CORE
    | {"policy", "plan", "quadlet", "files", "programs", "kernel", "systemd", "store", "reconcile"},
    "compose": CORE | {"files", "programs", "policy", "inputs", "processes"},
    "doctor": CORE | {"files", "kernel"},
    "agent": CORE
    | {"files", "policy", "plan", "inputs", "kernel", "systemd", "usage", "store", "reconcile"}
    | {"processes", "metric_text", "threads", "__version__"},
}
OUTERMOST = {"cli", "__main__", "__init__"}
ONLY_IN = {
    "subprocess": {"programs", "processes", "cli"},
    "pydantic": {"inputs"},
    "yaml": {"inputs", "cli"},
    "tomllib": {"inputs", "doctor"},
    "typer": {"cli"},
    "h11": {"agent", "http_client"},
    "ssl": {"http_client", "kubelet", "processes", "usage"},
    "http": {"processes", "agent", "usage"},
    "prometheus_client": {"agent"},
    "asyncio": {"threads", "kernel", "systemd", "reconcile", "processes", "agent", "cli"},
}
DBUS_MODULES = {"systemd/dbus/connection.py"}


def layer_of(path):
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def test_imports_go_one_way():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        if (layer := layer_of(path)) not in OUTERMOST
        for name in imports_of(path)
        if name.startswith("podslice.")
        and (target := name.split(".")[1]) != layer
        and target not in MAY_IMPORT[layer]
    ]
    assert not wrong


def test_every_layer_is_known():
    assert {layer_of(path) for path in modules()} <= MAY_IMPORT.keys() | OUTERMOST


def test_libraries_stay_where_they_belong():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        for name in imports_of(path)
        if (top := name.split(".")[0]) in ONLY_IN and layer_of(path) not in ONLY_IN[top]
    ]
    assert not wrong


def test_only_one_module_imports_dbus_next():
    importing = {
        str(path.relative_to(PACKAGE))
        for path in modules()
        if any(name.split(".")[0] == "dbus_next" for name in imports_of(path))
    }
    assert importing == DBUS_MODULES


def strings_of(path):
    """The string constants of a module without its docstrings."""
    tree = ast.parse(path.read_text())
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documentation
    ]


def test_the_dbus_package_has_no_knowledge_of_systemd():
    """It imports nothing that has it, and no constant names systemd, its objects or its errors."""
    allowed = ("podslice.errors", "podslice.systemd.dbus")
    wrong = [
        f"{path.relative_to(PACKAGE)}: {found}"
        for path in (PACKAGE / "systemd/dbus").glob("*.py")
        for found in (
            *(
                name
                for name in imports_of(path)
                if name.startswith("podslice.") and not name.startswith(allowed)
            ),
            *(text for text in strings_of(path) if "systemd" in text.lower()),
        )
    ]
    assert not wrong


def test_no_other_package_depends_on_the_dbus_package():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        if layer_of(path) != "systemd"
        for name in imports_of(path)
        if name.startswith("podslice.systemd.dbus")
    ]
    assert not wrong


def test_the_core_has_no_clock_no_environment_and_no_effects():
    forbidden = {"os", "time", "datetime", "random", "socket", "subprocess", "asyncio", "pathlib"}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        if layer_of(path) in ("model", "policy", "plan", "quadlet")
        for name in imports_of(path)
        if name.split(".")[0] in forbidden
    ]
    assert not wrong


def test_every_connection_that_changes_something_is_guarded():
    """Only verbs that read have a client without the guard."""

    def calls(path):
        nodes = (each for each in ast.walk(ast.parse(path.read_text())))
        called = (each.func for each in nodes if isinstance(each, ast.Call))
        return {ast.unparse(each).rpartition(".")[2] for each in called}

    made = {str(path.relative_to(PACKAGE)): calls(path) for path in modules()}
    connecting = {name for name, found in made.items() if "Bus" in found}
    guarded = {name for name, found in made.items() if "Guarded" in found}
    reading = {f"cli/verbs/{verb}.py" for verb in ("audit", "doctor", "version")}
    # these only give a daemon a function that connects
    agents = {"cli/verbs/agent.py"}
    assert connecting - reading - agents == guarded - {"agent/daemon.py"}
    # the exception from the guard sets four properties, and has no other caller
    assert {name for name, found in made.items() if "LevelSlices" in found} == {
        "features/kubelet/daemon.py"
    }
    assert "agent/daemon.py" in guarded


def diagram():
    """Return the packages and modules of the layout in CONTRIBUTING, in its order."""
    (block,) = re.findall(r"```\npodslice/\n(.*?)^\S", CONTRIBUTING, re.DOTALL | re.MULTILINE)
    return [line.split()[0] for line in block.splitlines()]


def test_the_layout_in_contributing_is_that_of_the_tree():
    packages = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    found = packages | {path.name for path in PACKAGE.glob("*.py") if "__" not in path.name}
    assert sorted(diagram()) == sorted(found)


def test_the_layout_in_contributing_lists_imported_packages_first():
    order = [name.removesuffix("/").removesuffix(".py") for name in diagram()]
    wrong = {
        (name, target)
        for name, targets in MAY_IMPORT.items()
        for target in targets & set(order)
        if order.index(target) > order.index(name)
    }
    assert not wrong


def test_contributing_has_a_paragraph_for_each_package():
    described = re.findall(r"^- \*\*(\w+)\*\* ", CONTRIBUTING, re.MULTILINE)
    assert [f"{name}/" for name in described] == [name for name in diagram() if name[-1] == "/"]


def test_paths_named_in_contributing_exist():
    tops = "|".join(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    named = re.findall(rf"`(?:podslice/)?((?:{tops})/[\w/.]*)`", CONTRIBUTING)
    assert len(named) > 10
    assert not [name for name in named if not (PACKAGE / name).exists()]
    outside = re.findall(r"`((?:tests|packaging|units)/[\w/.*-]*)`", CONTRIBUTING)
    assert len(outside) > 10
    assert not [name for name in outside if not [*ROOT.glob(name.removesuffix("/NAME"))]]

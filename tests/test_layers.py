"""The directions of imports between packages, as CONTRIBUTING.md describes them."""

import ast
import re
from functools import cache
from pathlib import Path

from tests import house
from tests.pure import pure_modules

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "podslice"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()

VALUES = {"errors", "model"}
MAY_IMPORT = {
    "errors": set(),
    "http_client": {"errors"},
    "model": {"errors"},
    "policy": VALUES,
    "plan": VALUES,
    "kernel": VALUES,
    "inputs": VALUES | {"kernel"},
    "systemd": VALUES | {"kernel"},
    "store": VALUES | {"kernel", "inputs"},
    "reconcile": VALUES | {"policy", "plan", "kernel", "systemd", "store"},
    "usage": VALUES | {"policy", "kernel", "systemd", "store", "reconcile"},
    "agent": VALUES
    | {"policy", "plan", "kernel", "inputs", "systemd", "store", "reconcile", "usage"}
    | {"__version__"},
    "features": set(),
}
NEEDS = {
    ("compose", "doctor"),
    ("history", "importing"),
    ("history", "node"),
}
"""The features that import another one."""
PENDING: set[tuple[str, str]] = set()
"""Modules of the core that still import a feature."""
OUTERMOST = {"cli", "__main__", "__init__"}
ONLY_IN = {
    "subprocess": {
        "kernel",
        "features/quadlet",
        "features/run",
        "features/compose",
        "features/importing",
    },
    "pydantic": {"cli"},
    "yaml": {"inputs", "cli"},
    "tomllib": {"inputs", "features/doctor"},
    "typer": {"cli", "features"},
    "h11": {"agent", "http_client"},
    "h2": {"features/quadlet"},
    "ssl": {"http_client", "features/kubelet", "features/history", "features/quadlet"},
    "http": {"agent", "features/quadlet", "features/history"},
    "prometheus_client": {"agent", "features/kubelet"},
    "asyncio": {"kernel", "systemd", "reconcile", "usage", "agent", "cli", "features"},
}
DBUS_MODULES = {"systemd/dbus/connection.py"}


def layer_of(path):
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def feature_of(name):
    """Return the feature that a module belongs to; empty for one of the core."""
    found = re.match(r"podslice[./]features[./](?!__)(\w+)[./]", f"{name}.")
    return found[1] if found else ""


@cache
def nodes_by_path():
    """The nodes of the syntax trees of the modules."""
    return {source.path: source.nodes for source in house.read_sources()}


@cache
def imports_of(path):
    names = []
    for node in nodes_by_path()[path]:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [node.module or "", *(f"{node.module}.{each.name}" for each in node.names)]
    return names


def modules():
    return list(nodes_by_path())


def test_imports_go_one_way():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        if (layer := layer_of(path)) not in {*OUTERMOST, "features"}
        for name in imports_of(path)
        if name.startswith("podslice.")
        and not feature_of(name)
        and (target := name.split(".")[1]) != layer
        and target not in MAY_IMPORT[layer]
    ]
    assert not wrong


def test_the_core_imports_no_feature():
    wrong = {
        (path.relative_to(PACKAGE).as_posix(), feature)
        for path in modules()
        if layer_of(path) != "features"
        for name in imports_of(path)
        if (feature := feature_of(name)) and feature != "FEATURES"
    }
    assert wrong == PENDING


def test_features_import_only_the_features_that_they_need():
    found = {
        (feature, other)
        for path in modules()
        if (feature := feature_of(path.relative_to(ROOT).as_posix()))
        for name in imports_of(path)
        if (other := feature_of(name)) and other != feature
    }
    present = {path.parent.name for path in PACKAGE.glob("features/*/__init__.py")}
    assert found == {pair for pair in NEEDS if set(pair) <= present}


def test_every_layer_is_known():
    assert {layer_of(path) for path in modules()} <= MAY_IMPORT.keys() | OUTERMOST


def test_libraries_stay_where_they_belong():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        for name in imports_of(path)
        if (top := name.split(".")[0]) in ONLY_IN
        and not str(path.relative_to(PACKAGE)).startswith(tuple(ONLY_IN[top]))
    ]
    assert not wrong


def test_only_one_module_imports_dbus_next():
    importing = {
        str(path.relative_to(PACKAGE))
        for path in modules()
        if any(name.split(".")[0] == "dbus_next" for name in imports_of(path))
    }
    assert importing == DBUS_MODULES


ARROWS_MAX = 55
"""Of pairs of packages of the core of which one imports the other."""
CORE_PACKAGES_MAX = 7
"""Of packages of the core that a feature imports."""
MORE_CORE_PACKAGES = {
    "compose": 10,
    "history": 10,
    "importing": 8,
    "kubelet": 10,
    "quadlet": 12,
    "run": 10,
}
"""The features that import more of them: they observe, change units, keep records and print."""


@cache
def arrows():
    return house.read_arrows(house.read_importers(house.read_sources()))


def test_few_packages_of_the_core_import_each_other():
    assert len(house.core_arrows(arrows())) <= ARROWS_MAX


def test_packages_do_not_import_each_other_in_a_cycle():
    assert not house.find_cycle(house.core_arrows(arrows()))


def test_a_feature_imports_few_packages_of_the_core():
    counts = house.feature_arrows(arrows()).items()
    found = {name.rpartition(".")[2]: count for name, count in counts}
    more = {name: count for name, count in found.items() if count > CORE_PACKAGES_MAX}
    assert more == {name: MORE_CORE_PACKAGES.get(name) for name in more}


def strings_of(path):
    """The string constants of a module without its docstrings."""
    nodes = nodes_by_path()[path]
    documentation = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in nodes
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


def test_pure_modules_have_no_clock_no_environment_and_no_effects():
    forbidden = {"os", "time", "datetime", "random", "socket", "subprocess", "asyncio", "pathlib"}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        if path.relative_to(ROOT) in pure_modules()
        for name in imports_of(path)
        if name.split(".")[0] in forbidden
    ]
    assert not wrong


def test_every_connection_that_changes_something_is_guarded():
    """Only verbs that read have a client without the guard."""

    def calls(path):
        called = (each.func for each in nodes_by_path()[path] if isinstance(each, ast.Call))
        return {ast.unparse(each).rpartition(".")[2] for each in called}

    made = {str(path.relative_to(PACKAGE)): calls(path) for path in modules()}
    connecting = {name for name, found in made.items() if "Bus" in found}
    guarded = {name for name, found in made.items() if "Guarded" in found}
    reading = {
        "cli/verbs/version.py",
        "features/doctor/verb.py",
        "features/kubelet/audit.py",
    }
    # these only give a daemon a function that connects
    agents = {"cli/verbs/agent.py", "features/kubelet/agent.py"}
    assert connecting - reading - agents == guarded - {"agent/daemon.py"}
    # the exception from the guard sets four properties, and has no other caller
    assert {name for name, found in made.items() if "LevelSlices" in found} == {
        "features/kubelet/agent.py"
    }
    assert "agent/daemon.py" in guarded


def diagram():
    """Return the packages and modules of the layout in CONTRIBUTING, in its order."""
    (block,) = re.findall(r"```\npodslice/\n(.*?)^\S", CONTRIBUTING, re.DOTALL | re.MULTILINE)
    return [line.split()[0] for line in block.splitlines() if line[:4] != "    "]


def test_contributing_lists_the_features():
    listed = re.findall(r"^    (\w+)/ ", CONTRIBUTING, re.MULTILINE)
    assert listed == sorted(path.parent.name for path in PACKAGE.glob("features/*/__init__.py"))


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

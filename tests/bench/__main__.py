"""Measure podslice: `make bench`.

    python3 -m tests.bench [NAME]... [--quick] [--json FILE] [--plots DIR] [--results FILE]

Without names all benchmarks run, which takes about 25 minutes and requires root and the test lab.
The machine should be idle otherwise: disturbed rounds are marked.

Each benchmark is a module with NAME and TITLE, the kind of its MACHINE, and `run`, which measures in
such a machine and returns the Result; `quick` asks for one small round.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench import host, inside
from tests.bench.result import Result, to_json, to_markdown, to_text
from tests.lab.qemu import Hardware
from tests.lab.vm import Vm

MODULES = {
    "planning": "planning",
    "start-up": "start_up",
    "bring-up": "bring_up",
    "steady": "steady",
    "agent": "agent_cost",
    "blocking": "blocking",
    "sharing": "sharing",
    "trees": "trees",
    "memory": "protection",
}
"""The benchmarks by name, in their order."""
MACHINES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "none": nullcontext,
    "namespace": inside.open_namespace,
    "vm": partial(Vm, has_source=True),
    "counting vm": partial(Vm, hardware=Hardware(clock="instructions")),
}
"""A new machine for each benchmark, by the name of its kind."""
DEFAULT_DIR = Path("build/bench")
ROOT = Path(__file__).parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks, print the tables, draw the plots, write the figures."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODULES))
    parser.add_argument("--quick", action="store_true", help="one small round: does it work?")
    parser.add_argument(
        "--json", type=Path, default=DEFAULT_DIR / "results.json", metavar="FILE", help="figures"
    )
    parser.add_argument(
        "--plots", type=Path, metavar="DIR", help="pictures; with --results plots/ beside FILE"
    )
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="have the tables in this text replaced"
    )
    arguments = parser.parse_args(argv)
    beside = arguments.results.parent if arguments.results else DEFAULT_DIR
    plots = arguments.plots or beside / "plots"
    if arguments.results and not plots.resolve().is_relative_to(beside.resolve()):
        parser.error("--plots must be below the directory of --results, which refers to them")
    if unknown := [name for name in arguments.names if name not in MODULES]:
        parser.error(f"{unknown[0]}: there is {', '.join(MODULES)}")
    # otherwise a module that is imported while something is measured would be compiled in that time
    compileall.compile_dir(ROOT / "podslice", quiet=1)
    machine = host.describe()
    print_now(host.to_text(machine))
    results = []
    for name in arguments.names or MODULES:
        module = importlib.import_module(f"tests.bench.{MODULES[name]}")
        sys.stderr.write(f"-- {name}: {module.TITLE}\n")
        with MACHINES[module.MACHINE]() as booted:
            result = module.run(booted, quick=arguments.quick)
        print_now(f"\n{to_text(result)}")
        results.append(result)
        # results are kept even if a later benchmark fails
        write_figures(arguments.json, to_json(machine, results))
        draw_all(result, plots)
    if arguments.results:
        put_tables(arguments.results, machine, results, plots)
    return 0


def write_figures(path: Path, document: dict[str, Any]) -> None:
    """Write the JSON document; results of other benchmarks from an earlier run are kept."""
    known = json.loads(path.read_text())["results"] if path.exists() else {}
    document["results"] = {**known, **document["results"]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def draw_all(result: Result, directory: Path) -> None:
    """Draw every plot of a result."""
    from tests.bench import pictures  # noqa: PLC0415 - takes a second, and is needed only here

    directory.mkdir(parents=True, exist_ok=True)
    for plot in result.plots:
        pictures.draw(plot, directory)


def put_tables(
    path: Path, machine: dict[str, object], results: Sequence[Result], plots: Path
) -> None:
    """Replace the text between the marks `<!-- NAME -->` and `<!-- end -->`.

    The plots are in the same directory or below.

    Raises:
        ValueError: a mark is missing.
    """
    text = path.read_text()
    shown = plots.resolve().relative_to(path.resolve().parent)
    text = put_between(text, "machine", f"```\n{host.to_text(machine)}```\n")
    for result in results:
        text = put_between(text, result.name, to_markdown(result, str(shown)))
    path.write_text(text)


def put_between(text: str, name: str, new: str) -> str:
    """Return the text with a new part between the marks of a name.

    Raises:
        ValueError: a mark is missing.
    """
    pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"the text has no mark {name}")
    return pattern.sub(lambda found: f"{found[1]}{new}{found[2]}", text, count=1)


def print_now(text: str) -> None:
    """Print at once; the next step takes minutes."""
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

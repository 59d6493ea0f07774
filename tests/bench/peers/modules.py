"""The interpreter with the imports of a verb, and nothing else.

    python3 modules.py list FILE VERB [ARGUMENT]...   run the verb, and write what it has imported
    python3 modules.py import FILE                    import these, in the same order

Modules whose import a verb suppresses are not imported here either.
"""

import gc
import os
import sys


class Only:
    """Refuses the import of other modules."""

    def __init__(self, names: list[str]) -> None:
        self._names = frozenset(names)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Return None, by which other finders are tried."""
        if name not in self._names:
            raise ModuleNotFoundError(f"{name} is not imported here", name=name)


def list_modules(path: str) -> None:
    """Run the verb, and write one module name a line."""
    from podslice.__main__ import main  # noqa: PLC0415

    sys.argv[1:] = sys.argv[3:]
    os._exit = sys.exit  # podslice exits at once, without exit handlers
    try:
        main()
    finally:
        own = ("__main__", "__mp_main__")
        names = [name for name, module in sys.modules.items() if module and name not in own]
        with open(path, "w") as file:  # noqa: PTH123 - pathlib is for the verb to import
            file.write("\n".join(names))


def import_modules(path: str) -> None:
    """Import the modules."""
    gc.disable()  # as podslice does
    with open(path) as file:  # noqa: PTH123
        names = file.read().split()
    sys.meta_path.insert(0, Only(names))
    for name in names:
        if name not in sys.modules:
            __import__(name)


if __name__ == "__main__":
    {"list": list_modules, "import": import_modules}[sys.argv[1]](sys.argv[2])

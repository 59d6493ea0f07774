"""The interpreter with the imports of a verb, and nothing else.

python3 modules.py list FILE VERB [ARGUMENT]...   run the verb, and write what it has imported
python3 modules.py import FILE                    import these, in the same order
python3 modules.py packages FILE                  import only those that are not of podslice or Python
"""

import gc
import os
import sys

OF_PACKAGES = ("/dist-packages/", "/site-packages/")


class Record:
    """Records the order in which imports begin; modules that import each other depend on it."""

    def __init__(self) -> None:
        self.names = list(sys.modules)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Return None, by which other finders are tried."""
        self.names.append(name)


def list_modules(path: str) -> None:
    """Run the verb, and write one module name a line; those of packages in a second file."""
    from podslice.__main__ import main  # noqa: PLC0415

    record = Record()
    sys.meta_path.insert(0, record)
    sys.argv[1:] = sys.argv[3:]
    os._exit = sys.exit  # podslice exits at once, without exit handlers
    try:
        main()
    finally:
        own = ("__main__", "__mp_main__")
        found = {name: sys.modules.get(name) for name in record.names if name not in own}
        names = [name for name, module in found.items() if module]
        packages = [name for name in names if is_of_package(found[name])]
        for file_name, lines in ((path, names), (f"{path}.packages", packages)):
            with open(file_name, "w") as file:  # noqa: PTH123 - pathlib is for the verb to import
                file.write("\n".join(lines))


def is_of_package(module: object) -> bool:
    """Return whether a module is neither of podslice nor of Python."""
    return any(part in (getattr(module, "__file__", None) or "") for part in OF_PACKAGES)


def import_modules(names_path: str) -> None:
    """Import the modules of a file."""
    gc.disable()  # as podslice does
    for name in read_names(names_path):
        if name not in sys.modules:
            __import__(name)


def read_names(path: str) -> list[str]:
    """Return the lines of a file."""
    with open(path) as file:  # noqa: PTH123
        return file.read().split()


if __name__ == "__main__":
    kind, file = sys.argv[1], sys.argv[2]
    if kind == "list":
        list_modules(file)
    else:
        import_modules(f"{file}.packages" if kind == "packages" else file)

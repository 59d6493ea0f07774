"""Parser of work files; their format is in floor.c."""

from pathlib import Path

Property = tuple[str, str, object]
"""Its name, the type of its value on the bus, and the value."""
Unit = tuple[str, list[Property]]

READERS = {"s": str, "b": lambda text: text == "1", "t": int, "u": int}


def read_work(path: str) -> list[list[Unit]]:
    """The units to start; those that are awaited together are in one list."""
    levels: list[list[Unit]] = [[]]
    for line in Path(path).read_text().splitlines():
        what, *fields = line.split("\t")
        if what == "unit":
            levels[-1].append((fields[0], []))
        elif what == "set":
            name, type_, *values = fields
            value = values if type_ == "as" else READERS[type_](values[0])
            levels[-1][-1][1].append((name, type_, value))
        else:
            levels.append([])
    return [level for level in levels if level]

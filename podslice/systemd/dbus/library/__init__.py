"""The modules of dbus-next, as modules of this package.

dbus-next's own package imports its server, whose import fails from Python 3.15 on: it uses
`typing.no_type_check_decorator`, which that version has removed. The messages need no server.
"""

from importlib import import_module
from importlib.util import find_spec

_package = find_spec("dbus_next")
if _package is None:
    raise ModuleNotFoundError("No module named 'dbus_next'", name="dbus_next")
__path__ = [*(_package.submodule_search_locations or ())]
import_module(f"{__name__}.errors")  # first: it and the message import each other

"""Import every module: hypothesis takes some of the constants of imported modules.

So a run of all unit tests has the same examples each time, whichever test runs first.
"""

import importlib
import pkgutil

import podslice

for each in pkgutil.walk_packages(podslice.__path__, "podslice."):
    if not each.name.endswith("__main__"):
        importlib.import_module(each.name)

"""Write the work file of all clients: the calls of `podslice apply`, from its own plan.

    python3 plan_work.py MANIFEST CAPACITY WORK

Runs inside the machine, with podslice in its path and nothing applied yet. The format is that of
floor.c. Limits that are not unit properties are refused: other clients could not set them.
"""

import asyncio
import sys
from itertools import groupby
from pathlib import Path

from podslice.cli.host import load_node
from podslice.cli.manifests import decide_all, load_manifests, valid_only
from podslice.cli.options import Planning
from podslice.cli.session import open_world
from podslice.model.config import Validate
from podslice.model.properties import PROPERTIES
from podslice.model.unit import TransientUnit
from podslice.plan import Plan, StartUnit, stage_of, transient_unit
from podslice.reconcile.assess import Request, assess


def main(manifest: str, capacity: str, work: str) -> None:
    """Plan, and write."""
    planning = Planning(flags={"capacity": capacity})
    loaded = load_manifests([manifest], None, Validate.STRICT)
    candidates = valid_only(loaded, decide_all(loaded, load_node(planning.config), planning.config))

    async def plan() -> Plan:
        async with open_world(planning) as world:
            return (await assess(world, Request(candidates=candidates))).plan

    made = asyncio.run(plan())
    if made.refused or made.skipped:
        raise SystemExit(f"not everything is possible: {made.refused[:1]} {made.skipped[:1]}")
    Path(work).write_text("".join(f"{line}\n" for line in lines(made)))


def lines(plan: Plan) -> list[str]:
    """Return the units of each level, and a wait after it."""
    found = []
    for _, steps in groupby(plan.steps, key=stage_of):
        for step in steps:
            if not isinstance(step, StartUnit):
                raise SystemExit(f"{step.name}: not a unit to start")
            changes = {change.name: change.new for change in step.changes}
            found += unit_lines(transient_unit(step.unit, changes))
        found.append("wait")
    return found


def unit_lines(unit: TransientUnit) -> list[str]:
    """Return one unit."""
    found = [f"unit\t{unit.name}"]
    for name, value in unit.properties.items():
        words = value if isinstance(value, tuple) else (value,)
        shown = (str(int(word)) if isinstance(word, bool) else str(word) for word in words)
        found.append("\t".join(("set", name, PROPERTIES[name].signature, *shown)))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])

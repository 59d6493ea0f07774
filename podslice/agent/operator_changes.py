"""What operators have changed with verbs, which is not drift."""

from __future__ import annotations

from podslice.agent.context import AgentContext
from podslice.model.unit import UnitName
from podslice.reconcile.manual_changes import take_over


class OperatorChanges:
    """Reads the records of verbs."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._pods: set[str] = set()

    def take(self) -> set[UnitName]:
        """Return the units of changes that are over, and remove their records."""
        changes = take_over(self._context.world.store)
        pods = {pod for change in changes for pod in change.pods}
        self._pods |= pods
        units = {unit for change in changes for unit in change.units}
        assessment = self._context.assessment
        if pods and assessment is not None:
            units |= {unit.name for unit in assessment.desired.units if unit.pod in pods}
        return units

    def take_pods(self) -> set[str]:
        """Return the pods of changes since the last call, those under way included."""
        under_way = self._context.world.store.manual_changes.load()
        pods = self._pods | {pod for change in under_way for pod in change.pods}
        self._pods = set()
        return pods

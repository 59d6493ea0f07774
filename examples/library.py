"""podslice as a library: the decision about a pod, and the units of a node.

The policy is a pure core of typed functions: no I/O, no clock, no third-party package.
"""

from podslice.model.config import Config, Rules
from podslice.model.node import Node
from podslice.model.pod import Container, Pod, default_uid
from podslice.model.quantity import parse_quantity
from podslice.model.resources import Resources
from podslice.policy.decide import decide
from podslice.policy.desire import desire


def amount(text: str) -> int:
    """Amounts are integers, in thousandths of their unit."""
    return parse_quantity(text).milli


node = Node(capacity={"cpu": amount("8"), "memory": amount("32Gi")})
config = Config(rules=Rules.PROPOSAL)
pod = Pod(
    name="web",
    uid=default_uid("default", "web"),
    containers=(
        Container(
            name="main",
            where="spec.containers[0]",
            resources=Resources(requests={"cpu": amount("500m")}, limits={"memory": amount("1Gi")}),
        ),
    ),
)

decision = decide(pod, node, config)
print(decision.qos, decision.slice)
for property_ in decision.properties:
    print(property_.name, property_.value, "#", property_.why)

desired = desire([decision], node, config)
for unit in desired.units:
    print(unit.name, unit.values)

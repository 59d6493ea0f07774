"""Start the units of a work file with dbus-fast, 32 calls in flight.

    client_dbus_fast.py WORK

Raw messages, which are faster than its proxies. Without Subscribe, as floor.c.
"""

import asyncio
import sys

from dbus_fast import BusType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus
from work import Unit, read_work

IN_FLIGHT = 32
SYSTEMD = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"
MANAGER = f"{SYSTEMD}.Manager"
MATCH = f"type='signal',sender='{SYSTEMD}',path='{PATH}',interface='{MANAGER}',member='JobRemoved'"


class Client:
    """A connection, its queued jobs and those that have ended."""

    def __init__(self, bus: MessageBus) -> None:
        self.bus = bus
        self.slots = asyncio.Semaphore(IN_FLIGHT)
        self.asked: set[str] = set()
        self.ended: set[str] = set()
        self.changed = asyncio.Event()
        bus.add_message_handler(self.on_message)

    def on_message(self, message: Message) -> None:
        """Record the end of a job."""
        if message.message_type is MessageType.SIGNAL and message.member == "JobRemoved":
            _, job, unit, result = message.body
            if result != "done":
                sys.exit(f"{unit}: {result}")
            self.ended.add(job)
            self.changed.set()

    async def start(self, unit: Unit) -> None:
        """Start one unit; its job is awaited with those of the others."""
        name, properties = unit
        body = [
            name,
            "replace",
            [[key, Variant(type_, value)] for key, type_, value in properties],
            [],
        ]
        message = Message(
            destination=SYSTEMD,
            path=PATH,
            interface=MANAGER,
            member="StartTransientUnit",
            signature="ssa(sv)a(sa(sv))",
            body=body,
        )
        async with self.slots:
            reply = await self.bus.call(message)
        if reply.message_type is MessageType.ERROR:
            sys.exit(f"{name}: {reply.body}")
        self.asked.add(reply.body[0])

    async def all_up(self) -> None:
        """Wait until every queued job has ended."""
        while self.asked - self.ended:
            self.changed.clear()
            await self.changed.wait()
        self.asked.clear()


async def main(path: str) -> None:
    """Start level by level."""
    bus = await MessageBus(bus_type=BusType.SYSTEM).connect()
    await bus.call(
        Message(
            destination="org.freedesktop.DBus",
            path="/org/freedesktop/DBus",
            interface="org.freedesktop.DBus",
            member="AddMatch",
            signature="s",
            body=[MATCH],
        )
    )
    client = Client(bus)
    for level in read_work(path):
        await asyncio.gather(*map(client.start, level))
        await client.all_up()
    bus.disconnect()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

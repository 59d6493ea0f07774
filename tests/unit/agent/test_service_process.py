import asyncio
from contextlib import AsyncExitStack

import pytest

from podslice.agent import service_process as module
from podslice.agent.endpoints.http import Response
from podslice.agent.service_process import Scheduler, ServiceProcess
from tests.unit.agent.fakes import end, until

HOUR_SEC = 3600.0


class Rounds:
    """Rounds that are recorded, and settled unless they are to fail."""

    def __init__(self):
        self.count = 0
        self.is_settled = True
        self.delays = []

    def count_for(self, scheduler):
        async def run_round():
            self.count += 1
            self.delays.append(scheduler.delay_sec)
            return self.is_settled

        return run_round


@pytest.fixture
def rounds():
    return Rounds()


@pytest.fixture
async def start(rounds):
    """Return a function that runs a scheduler with a period."""
    running = []

    def run(period_sec):
        scheduler = Scheduler(lambda: period_sec)
        running.append(asyncio.create_task(scheduler.run(rounds.count_for(scheduler))))
        return scheduler

    yield run
    for task in running:
        await end(task)


async def test_the_first_round_needs_no_request(start, rounds):
    start(HOUR_SEC)
    await until(lambda: rounds.count)


async def test_a_request_starts_a_round(start, rounds):
    scheduler = start(HOUR_SEC)
    await until(lambda: rounds.count == 1)
    scheduler.request()
    await until(lambda: rounds.count == 2)


async def test_requests_at_the_same_time_share_a_round(start, rounds):
    scheduler = start(HOUR_SEC)
    await until(lambda: rounds.count == 1)
    for _ in range(100):
        scheduler.request()
    await until(lambda: rounds.count == 2)
    await asyncio.sleep(module.QUIET_SEC * 5)
    assert rounds.count == 2


async def test_a_round_waits_as_long_as_any_of_its_requests_requires(start, rounds):
    scheduler = start(HOUR_SEC)
    await until(lambda: rounds.count == 1)
    scheduler.request(0.0)
    await until(lambda: rounds.count == 2)
    scheduler.request(0.0)
    scheduler.request(HOUR_SEC)
    for _ in range(20):
        await asyncio.sleep(0)
    assert rounds.count == 2


async def test_a_request_during_a_round_starts_another_one():
    scheduler, counts = Scheduler(lambda: HOUR_SEC), []

    async def run_round():
        counts.append(1)
        if len(counts) == 1:
            scheduler.request()
        return True

    running = asyncio.create_task(scheduler.run(run_round))
    await until(lambda: len(counts) == 2)
    await end(running)


async def test_rounds_are_periodic(start, rounds):
    start(0.001)
    await until(lambda: rounds.count == 3)


async def test_failed_rounds_are_repeated_with_increasing_delays(start, rounds, monkeypatch):
    monkeypatch.setattr(module, "QUIET_SEC", 0.0)
    rounds.is_settled = False
    scheduler = start(HOUR_SEC)
    # requested again and again, as by a round that fails and changes something each time
    for count in range(1, 5):
        await until(lambda: rounds.count == count)  # noqa: B023 - awaited here
        scheduler.request()
    assert rounds.delays == [HOUR_SEC, 0.1, 0.2, 0.4]


async def test_after_a_settled_round_the_delay_is_the_period_again(start, rounds):
    rounds.is_settled = False
    scheduler = start(HOUR_SEC)
    await until(lambda: rounds.count == 1)
    rounds.is_settled = True
    await until(lambda: rounds.count == 2)
    await until(lambda: scheduler.delay_sec == HOUR_SEC)


async def test_a_round_that_does_not_finish_is_stuck(monkeypatch):
    monkeypatch.setattr(module, "STUCK_SEC", 0.05)
    scheduler = Scheduler(lambda: HOUR_SEC)
    running = asyncio.create_task(scheduler.run(asyncio.Event().wait))
    assert not scheduler.is_stuck
    await until(lambda: scheduler.is_stuck)
    await end(running)


async def test_a_scheduler_that_waits_is_not_stuck(start, rounds, monkeypatch):
    """The period may be longer than a round may take: an hour."""
    monkeypatch.setattr(module, "STUCK_SEC", 0.0)
    scheduler = start(HOUR_SEC)
    await until(lambda: rounds.count == 1)
    assert not scheduler.is_stuck


# The sockets.


async def ask(opening):
    """Return everything that the server sends for a request at a connection."""
    reader, writer = await opening
    writer.write(b"GET /hello HTTP/1.0\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.usefixtures("allow_effects")
async def test_a_file_and_a_port_are_served_until_the_end(tmp_path, unused_tcp_port):
    async def hello():
        return Response(body=[b"hello"])

    path, listen = tmp_path / "agent.sock", f"127.0.0.1:{unused_tcp_port}"
    async with AsyncExitStack() as stack:
        await ServiceProcess.serve(stack, {"/hello": hello}, sockets=(), path=path, listen=listen)
        for opening in (
            asyncio.open_unix_connection(path),
            asyncio.open_connection("127.0.0.1", unused_tcp_port),
        ):
            assert (await ask(opening)).endswith(b"hello")
    assert not path.exists()

import asyncio
import json
from http import HTTPStatus

from podslice.agent.endpoints.metrics import routes
from tests.unit import builders
from tests.unit.agent import sample_node


async def ask(path, **fields):
    return await routes(lambda: sample_node.snapshot(**fields))[path]()


def unasked(*_):
    raise AssertionError("this is expensive, and was not requested")


async def test_health_is_reported_without_reading_pods():
    answer = await ask("/healthz", read_stats=unasked, observe=unasked)
    assert (answer.status, b"".join(answer.body)) == (HTTPStatus.OK, b"ok\n")


async def test_an_unhealthy_agent_reports_its_problems():
    answer = await ask("/healthz", problems=("no bus", "/run is full"))
    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert b"".join(answer.body) == b"no bus\n/run is full\n"


async def test_metrics_are_text_for_prometheus():
    answer = await ask("/metrics")
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    assert b'pod_cpu_usage_seconds_total{namespace="default",pod="web"}' in b"".join(answer.body)


async def test_documents_are_json():
    for path, name in (("/pods", "items"), ("/stats/summary", "pods")):
        answer = await ask(path)
        assert answer.content_type == "application/json"
        assert len(json.loads(b"".join(answer.body))[name]) == 3


async def test_each_summary_remembers_the_one_before():
    uptimes = iter((10**6, 2 * 10**6))

    def snapshot():
        now = sample_node.default_stats()._replace(uptime_usec=next(uptimes))
        return sample_node.snapshot(
            read_stats=lambda pods: now if not pods else sample_node.node_stats()
        )

    serve = routes(snapshot)["/stats/summary"]
    first, second = [json.loads(b"".join((await serve()).body)) for _ in range(2)]
    assert "usageNanoCores" not in first["node"]["cpu"]
    assert second["node"]["cpu"]["usageNanoCores"] == 0


async def test_responses_that_read_every_pod_are_shared():
    fresh = {
        path: (await route()).fresh_sec for path, route in routes(sample_node.snapshot).items()
    }
    assert fresh == {"/healthz": 0.0, "/metrics": 1.0, "/pods": 1.0, "/stats/summary": 1.0}


async def test_the_event_loop_continues_while_many_pods_are_read():
    pods = builders.decisions(*(builders.besteffort(f"pod-{number}") for number in range(200)))
    asking = asyncio.create_task(sample_node.snapshot(*reversed(pods)).stats())
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 5
    keys = [pod.decision.pod.key for pod in (await asking).pods]
    assert len(keys) == 200
    assert keys == sorted(keys)

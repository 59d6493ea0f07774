"""`podslice status || alert` on a machine whose agent refuses, evicts, holds back and stops."""

import json

import pytest

from tests.host import agent

BIG = agent.manifest("big", memory="4Ti", limit="4Ti")


@pytest.fixture
def node(clean_namespace):
    agent.begin(clean_namespace)
    agent.install(clean_namespace)
    yield clean_namespace
    agent.remove(clean_namespace)
    clean_namespace.podslice("delete", "--all", "--grace-period", "0", check=False)


def status(node, *arguments):
    """Return the exit code, the problems, and the pods that are wanted and do not run."""
    done = node.podslice("status", "-o", "json", *arguments, check=False)
    document = json.loads(done.stdout)
    assert document["healthy"] == (done.exit_code == 0)
    problems = [f"{each['kind']} {each['object']}" for each in document["problems"]]
    return done.exit_code, problems, document["pending"]


def problems(node, *arguments):
    return status(node, *arguments)[1]


def restart(node, *options):
    node.run("systemctl", "stop", agent.UNIT)
    agent.start(node, *options)


def test_status_and_the_agent_agree(node):
    assert status(node) == (0, [], [])
    agent.put(node, "web", agent.manifest("web"))
    stopped = "agent-stopped podslice-agent"
    assert problems(node) == [stopped, "pod-pending default/web"]
    agent.start(node)
    assert status(node) == (0, [], [])

    agent.put(node, "big", BIG)
    agent.until(lambda: problems(node) == ["pod-pending default/big"])
    code, _, by_agent = status(node)
    assert (code, by_agent[0]["reason"]) == (3, "OutOfmemory")
    table = node.podslice("status", check=False)
    assert (table.exit_code, table.stderr) == (3, "")
    assert "default/big  " in table.stdout
    assert "pending (OutOfmemory)" in table.stdout
    assert "pod-pending" in node.podslice("status", "--exit-zero", "-o", "json").stdout
    assert status(node, "web") == (0, [], [])
    node.run("systemctl", "stop", agent.UNIT)
    assert status(node) == (3, [stopped, "pod-pending default/big"], by_agent)

    node.run("rm", f"{agent.MANIFESTS}/big.yaml")
    agent.put(node, "bad", "[")
    invalid = f"invalid-manifest {agent.MANIFESTS}/bad.yaml: line 2"
    assert problems(node) == [stopped, invalid]
    agent.start(node)
    assert problems(node) == [invalid]
    node.run("rm", f"{agent.MANIFESTS}/bad.yaml")
    agent.until(lambda: status(node) == (0, [], []))


def test_an_evicted_pod_is_wanted_until_it_runs_again(node):
    batch = json.loads(agent.manifest("batch"))
    batch["spec"]["containers"][0].pop("resources")
    agent.put(node, "batch", json.dumps(batch))
    agent.start(node)
    node.podslice("run", "--detach", "batch", "--", "sleep", "infinity")
    assert status(node) == (0, [], [])
    restart(node, "--eviction-hard=memory.available<99%")
    condition = "node-condition MemoryPressure"
    agent.until(
        lambda: problems(node) == [condition, "pod-evicted default/batch"],
        8,
        explain=lambda: (
            node.podslice("status", check=False).stdout + node.podslice("events").stdout
        ),
    )
    node.podslice("readmit", "batch")
    agent.until(lambda: problems(node) == [condition, "pod-pending default/batch"])
    code, _, (held,) = status(node)
    assert (code, held["condition"], held["qos_class"]) == (3, "MemoryPressure", "BestEffort")
    restart(node)
    assert status(node) == (0, [], [])

"""`adopt`: its arguments and the output of outcomes."""

import json

import pytest

from podslice.features.run import adoption
from podslice.features.run.adoption import Adopted, Adoption, AdoptionOutcome
from podslice.model.unit import UnitName

SCOPE = UnitName("podslice-podweb-main.scope")
TABLE = f"""\
PID    NAME   OUTCOME
4      nginx  adopted  from /system.slice/nginx.service
99999  ?      refused  no such process
5      nginx  adopted  from /system.slice/nginx.service
{SCOPE}: 2 adopted, 1 refused
"""


@pytest.fixture
def asked(monkeypatch, memory):
    """What was asked for; the outcome is always that of `TABLE`, but for the ids 4 and 5 alone."""
    calls = []

    async def adopt(world, key, container, pids):
        assert (world.store.root / "lock").exists()
        calls.append((key, container, pids))
        why = "from /system.slice/nginx.service"
        outcomes = {
            4: (AdoptionOutcome.ADOPTED, "nginx", why),
            5: (AdoptionOutcome.ADOPTED, "nginx", why),
        }
        other = (AdoptionOutcome.REFUSED, "?", "no such process")
        rows = ((pid, *outcomes.get(pid, other)) for pid in pids)
        made = (
            Adoption(pid=pid, name=name, outcome=outcome, why=why)
            for pid, outcome, name, why in rows
        )
        return Adopted(unit=SCOPE, control_group=f"/x/{SCOPE}", processes=tuple(made))

    monkeypatch.setattr(adoption, "adopt", adopt)
    return calls


def test_every_process_is_listed(podslice, asked):
    assert podslice("adopt", "web", "4", "99999", "5") == (1, TABLE, "")
    assert asked == [("default/web", None, [4, 99999, 5])]


def test_the_exit_code_is_0_if_all_processes_are_there(podslice, asked):
    assert podslice("adopt", "web", "-n", "shop", "-c", "main", "4", "5").code == 0
    assert podslice("adopt", "a/b", "-n", "shop", "4").code == 0
    assert asked == [("shop/web", "main", [4, 5]), ("a/b", None, [4])]


def test_as_json_and_by_name(podslice, asked):
    document = json.loads(podslice("adopt", "web", "4", "-o", "json").out)
    assert document == {
        "version": 1,
        "unit": SCOPE,
        "control_group": f"/x/{SCOPE}",
        "processes": [
            {
                "pid": 4,
                "name": "nginx",
                "outcome": "adopted",
                "why": "from /system.slice/nginx.service",
            }
        ],
    }
    assert podslice("adopt", "web", "4", "-o", "name").out == f"{SCOPE}\n"


@pytest.mark.parametrize("arguments", [[], ["web"], ["web", "0"], ["web", "4194305"]])
def test_processes_must_be_named(podslice, asked, arguments):
    ended = podslice("adopt", *arguments)
    assert (ended.code, ended.out, asked) == (2, "", [])
    assert ended.err.startswith("error: ")


def test_the_pod_must_be_applied(podslice, memory):
    ended = podslice("adopt", "web", "1")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        "error: pod default/web is not applied; apply its manifest first: podslice apply -f FILE\n"
    )

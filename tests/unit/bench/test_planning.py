"""The benchmark of planning measures the parts that it names."""

from tests.bench import planning


def test_a_quick_run_has_every_stage():
    result = planning.run(quick=True)
    (off, on) = result.rounds
    assert not off["collector"]
    assert on["collector"]
    assert off["total_ms"] == sum(off[f"{stage}_ms"] for stage in planning.TOTAL)
    assert [row[0] for row in result.tables[0].rows] == ["100"]
    assert len(result.aims) == 1


def test_manifests_are_pods_all_of_them():
    data = planning.make_manifests(6)
    assert len(planning.load(data)) == 6
    assert data.count(b"kind: Deployment") == 3

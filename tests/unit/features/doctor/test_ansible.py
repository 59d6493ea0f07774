"""The findings in the facts of the collection for Ansible."""


def test_the_requirements_and_versions(module, memory, machine, monkeypatch):
    machine()
    found = module("info", gather=["doctor", "version"])
    assert isinstance(found["doctor"]["passed"], bool)
    assert found["version"]["podslice"] == found["podslice_version"]

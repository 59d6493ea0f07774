"""The catalog explains every kind of event, in few words, and names only what there is."""

import re
from pathlib import Path

from podslice.cli.verb_table import VERBS
from podslice.model.event import Kind

CATALOG = Path(__file__).resolve().parents[3] / "units/catalog/podslice.catalog"
TEXT = CATALOG.read_text()
WORDS = {"agent"}
"""What may stand behind the name of the program without being a verb of it."""
ENTRIES = dict(re.findall(r"^-- ([0-9a-f]{32})\n(.*?)(?=^-- |\Z)", TEXT, re.DOTALL | re.MULTILINE))


def test_every_kind_has_an_entry_and_nothing_else_has():
    assert list(ENTRIES) == [kind.message_id for kind in Kind]
    assert len(ENTRIES) == TEXT.count("\n-- ")


def test_message_ids_and_labels_are_ones_own():
    assert len({kind.message_id for kind in Kind}) == len(Kind)
    assert len({kind.label for kind in Kind}) == len(Kind)


def test_every_entry_has_its_header_and_an_explanation():
    """Source: systemd, docs/CATALOG.md."""
    for entry in ENTRIES.values():
        header, _, text = entry.partition("\n\n")
        keys = [line.partition(": ")[0] for line in header.splitlines()]
        assert keys == ["Subject", "Defined-By", "Documentation"]
        assert text.strip()
        assert all(len(line) <= 90 for line in text.splitlines()), entry


def test_verbs_and_fields_that_are_named_are_there():
    text = " ".join(TEXT.partition("\n-- ")[2].split())
    named = set(re.findall(r"podslice ([a-z]+)", text)) - WORDS
    assert {"readmit", "top", "events", "status"} <= named <= {*VERBS}
    assert set(re.findall("@(.*?)@", TEXT)) == {"PODSLICE_POD", "PODSLICE_UNIT"}

"""Each text of the table, with hostile texts: an error with its place, or one unchanged value."""

import csv
import json
import re
from functools import cache

import pytest

from podslice.errors import InputError
from podslice.features.quadlet.result import Options
from podslice.features.quadlet.unit_text import EMPTY_VARIABLE
from podslice.model.grammar import full_image
from tests.cases.texts import ALL_TEXTS, FIELDS, GRAMMARS, HOSTILE, document, load, place, quadlets
from tests.cases.unit_words import generate as generated
from tests.cases.unit_words import resolved, split

JSON_KEYS = ("Entrypoint", "HealthCmd")
WORD_KEYS = ("Exec", "Environment", "Label", "PodmanArgs", "Mount")
LISTS = ("AddCapability", "DropCapability")
# what has its choices checked, is read elsewhere, or is the name of something in the same files
WITHOUT_GRAMMAR = re.compile(
    r"containers\[]\.(?:imagePullPolicy|restartPolicy|terminationMessagePolicy)"
    r"|containers\[]\.env\[]\.valueFrom\.(?:fieldRef|resourceFieldRef|\w+KeyRef\.key).*"
    r"|containers\[]\.ports\[]\.protocol|containers\[]\.volumeMounts\[]\.(?:name|mountPropagation)"
    r"|containers\[]\.\w+Probe\.httpGet\.scheme|containers\[]\.\w+Probe\..*\.port"
    r"|containers\[]\.securityContext\.procMount|.*Profile\.type"
    r"|volumes\[]\.emptyDir\.medium|volumes\[]\.hostPath\.type|.*\.items\[]\.(?:key|path)"
    r"|dnsPolicy|restartPolicy|priorityClassName|securityContext\.fsGroupChangePolicy"
)
# names of objects in the same files, of ports that probes refer to, and what is refused
NOT_IN_UNITS = re.compile(
    r"subdomain|serviceAccount(?:Name)?|.*\.(?:configMap|secret)\.(?:name|secretName)|.*(?:KeyRef|MapRef|secretRef)\.name"
    r"|containers\[]\.ports\[]\.name"
)
OLD = Options(podman_version=(5, 4))
NEW = Options(podman_version=(5, 6))


def unit_texts(files):
    """The texts of the units; other files are the data of a container."""
    return [file.text for file in files if "/" not in file.path]


def lines(text):
    """The section, the key and the value of each line of a unit."""
    section = ""
    for line in text.split("\n"):
        if line.startswith("["):
            section = line
        elif line and not line.startswith("#"):
            yield section, *line.partition("=")[::2]


@cache  # nearly all lines of two documents are equal
def words_of(section, key, value):
    """The words that podman or a service gets from a line."""
    if section in ("[Service]", "[Unit]") and key.startswith("Exec"):
        return split_by_systemd(value)
    if key in JSON_KEYS:
        return json.loads(undouble(value))
    if key in WORD_KEYS:
        return split_by_systemd(generated(value))
    return undouble(value).split() if key in LISTS else [undouble(value)]


def split_by_systemd(line):
    """The words of a line without a lone `;`, which would end a command."""
    outside = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)
    assert ";" not in outside.split()
    return [resolved(each, {EMPTY_VARIABLE: ""}) for each in split(line)]


def undouble(text):
    assert not re.search(r"%(?![%tE])|\$(?!\$)", text.replace("%%", "").replace("$$", ""))
    return text.replace("%%", "%").replace("$$", "$")


def texts_of(key, word):
    """The texts in a word, split as podman splits it."""
    yield word
    yield from word.partition("=")
    if key == "Volume":
        source, target = word.split(":")[:2]
        yield from (source, source.removeprefix("/srv/"), target)
    elif key == "Mount":
        (fields,) = csv.reader([word])
        yield from (each.partition("=")[2] for each in fields)
    elif key == "PublishPort":
        yield word.rpartition(":")[0].rpartition(":")[0].strip("[]")
    elif key == "PodName":
        yield from word.split("__")
    elif key in ("AddHost", "DNSOption"):
        yield from word.split(":", 1)
    elif word.startswith("--sysctl="):
        ((setting,),) = csv.reader([word.removeprefix("--sysctl=")])
        yield from setting.partition("=")
    elif word.startswith("--security-opt="):
        yield from (word.split("=", 2)[2], word.split("=", 2)[2].partition(":")[2])
    elif key == "SeccompProfile":
        yield word.removeprefix("/var/lib/kubelet/seccomp/")
    elif key == "ExecStart" and word.startswith("{"):
        yield from leaves(json.loads(word))


def leaves(value):
    if isinstance(value, str):
        yield value
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from leaves(each)


def shape(files):
    """What a text must not change: the lines, and the number of words in each."""
    return [each for text in unit_texts(files) for each in shape_of(text)]


@cache  # nearly all units of two documents are equal
def shape_of(text):
    return [
        (section, key, len(words_of(section, key, value)))
        for section, key, value in lines(text)
        if value != f"{EMPTY_VARIABLE}="
    ]


def units(pod, options):
    """The files of a valid manifest."""
    loaded, workloads, errors = load(pod)
    assert errors == []
    return quadlets(loaded, workloads, options).files


@pytest.mark.parametrize("field", FIELDS)
def test_a_text_is_an_error_or_one_value(field):
    for entry in (0, 1) if "volumeMounts" in field else (0,):
        valid = {
            options: shape(units(document(field, entry=entry), options)) for options in (OLD, NEW)
        }
        for name, text in HOSTILE.items():
            loaded, workloads, errors = load(document(field, text, entry))
            if errors:
                where = re.compile(place(field))
                assert [each for each in errors if not where.fullmatch(each.where)] == [], name
                assert all(str(each).isprintable() for each in errors), name
                continue
            for options in (OLD, NEW):
                files = quadlets(loaded, workloads, options).files
                if not NOT_IN_UNITS.fullmatch(field) and (text or field.endswith(("[]", ".value"))):
                    assert shape(files) == valid[options], name
                    assert expected(field, text) in found(files), name


def found(files):
    """The texts in units, split as podman splits them."""
    return set().union(*map(found_in, unit_texts(files)))


@cache
def found_in(unit):
    return {
        text
        for section, key, value in lines(unit)
        for word in words_of(section, key, value)
        for text in texts_of(key, word)
    }


def expected(field, text):
    """A text as it is in the unit: podman takes capabilities without CAP_, and whole references."""
    if field == "containers[].image":
        return full_image(text)
    if "capabilities" in field:
        return text.upper().removeprefix("CAP_")
    if field.endswith("httpGet.path"):
        return text if text.startswith("/") else f"/{text}"
    if field == "metadata.uid":
        return f"kubepods-besteffort-pod{text.replace('-', '_')}.slice"
    if field == "containers[].envFrom[].prefix":
        return f"{text}k"
    return text


def test_each_text_has_a_grammar_or_is_in_no_unit():
    without = sorted(path for path in ALL_TEXTS.keys() - GRAMMARS.keys())
    assert [each for each in without if not WITHOUT_GRAMMAR.fullmatch(each)] == []


# variables with an invalid name are left out, as in the kubelet
WRITTEN = [
    each for each in FIELDS if not (NOT_IN_UNITS.fullmatch(each) or each.endswith(".prefix"))
]


@pytest.mark.parametrize("field", WRITTEN)
def test_a_text_that_no_reader_has_checked_is_not_written(field):
    # units with texts that match are compared above
    for text in (each for each in HOSTILE.values() if not GRAMMARS[field].matches(each)):
        loaded, workloads, errors = load(document(field, text), validate=None)
        if errors or not text or (".." in text and field.endswith("hostPath.path")):
            continue  # the reader resolves it
        for options in (OLD, NEW):
            with pytest.raises(InputError, match=" is not "):
                quadlets(loaded, workloads, options)

"""Words of units: as podman's generator writes them, and as systemd reads them."""

import re

ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
SPACE = " \t\n\r"


def split(line):
    """Words as systemd's extract_first_word finds them with quotes and C escapes.

    Source: systemd, src/basic/extract-word.c; podman, pkg/systemd/parser/split.go.
    """
    found, at = [], 0
    while at < len(line):
        if line[at] in SPACE:
            at += 1
            continue
        text, quote = "", ""
        while at < len(line) and (quote or line[at] not in SPACE):
            character = line[at]
            at += 1
            if character == "\\":
                if line[at] == "x":
                    text += chr(int(line[at + 1 : at + 3], 16))
                    at += 3
                else:
                    text += ESCAPES[line[at]]
                    at += 1
            elif quote:
                quote, text = ("", text) if character == quote else (quote, text + character)
            elif character in "\"'":
                quote = character
            else:
                text += character
        assert not quote
        found.append(text)
    return found


def generate(line):
    """What podman's generator writes: it stops at an empty word, and quotes what needs it.

    Source: podman 5.4, pkg/systemd/parser/split.go, extractFirstWord, escapeWords.
    """
    found = split(line)
    kept = found[: found.index("")] if "" in found else found
    return " ".join(map(quoted, kept))


def quoted(text):
    if not re.search(r"[\s\x00-\x1f\x7f\"'\\]", text):
        return text
    names = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", '"': '\\"'}
    escaped = (
        names.get(c) or (f"\\x{ord(c):02x}" if ord(c) < 32 or ord(c) == 127 else c) for c in text
    )
    return f'"{"".join(escaped)}"'


def start(line, environment):
    """The arguments that systemd starts a program with.

    Source: systemd.service(5), "Command lines"; systemd.unit(5), "Specifiers".
    """
    assert not re.search(r"(?:^|\s);(?:\s|$)", line), "the end of the command"
    return [resolved(text, environment) for text in split(line)]


def resolved(text, environment):
    # of the specifiers, units have that of the runtime directory
    specified = {"%": "%", "t": "/run"}
    unspecified = re.sub("%(.)", lambda match: specified[match[1]], text, flags=re.DOTALL)
    return re.sub(
        r"\$(?:\$|\{(\w+)\})",
        lambda match: "$" if match[1] is None else environment[match[1]],
        unspecified,
    )

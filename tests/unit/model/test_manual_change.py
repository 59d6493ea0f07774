"""The caller of a verb, as text and as fields of an event."""

import pytest

from podslice.model.node_state import Account, Caller

ALICE, ROOT = Account(uid=1000, name="alice"), Account(uid=0, name="root")


@pytest.mark.parametrize(
    ("found", "text", "fields"),
    [
        (Caller(), "", {}),
        (Caller(login=ALICE), "alice", {"LOGIN_UID": "1000", "LOGIN_USER": "alice"}),
        (
            Caller(login=ALICE, sudo=ALICE),
            "alice",
            {"LOGIN_UID": "1000", "LOGIN_USER": "alice", "SUDO_UID": "1000", "SUDO_USER": "alice"},
        ),
        (
            Caller(login=ROOT, sudo=Account(uid=None, name="alice")),
            "root (SUDO_USER=alice)",
            {"LOGIN_UID": "0", "LOGIN_USER": "root", "SUDO_USER": "alice"},
        ),
        (Caller(sudo=ALICE), "SUDO_USER=alice", {"SUDO_UID": "1000", "SUDO_USER": "alice"}),
        (Caller(login=Account(uid=4711)), "uid 4711", {"LOGIN_UID": "4711"}),
    ],
)
def test_a_caller_is_the_login_and_what_sudo_states_otherwise(found, text, fields):
    assert (str(found), found.fields) == (text, fields)

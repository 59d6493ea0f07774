"""`python3 -m tests.host.as_user NAME VERB…`: podslice as somebody else, without a login.

As a module of its own it runs in a fork of an interpreter that has podslice imported; a new
interpreter takes some seconds in an emulated machine.
"""

import os
import pwd
import sys

from podslice.__main__ import main


def become(name):
    """Be that user, for good."""
    user = pwd.getpwnam(name)
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    os.environ.update(HOME=user.pw_dir, USER=name, LOGNAME=name)


if __name__ == "__main__":
    become(sys.argv[1])
    sys.argv[:2] = ["podslice"]
    main()

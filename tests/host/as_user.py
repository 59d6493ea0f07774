"""`python3 -m tests.host.as_user NAME VERB…`: podslice as another user, without a login.

As a module it runs in a fork of an interpreter that has imported podslice; a new
interpreter takes some seconds in an emulated machine.
"""

import os
import pwd
import sys

from podslice.__main__ import main


def become(name):
    """Change to that user permanently."""
    user = pwd.getpwnam(name)
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    os.environ.update(HOME=user.pw_dir, USER=name, LOGNAME=name)


if __name__ == "__main__":
    become(sys.argv[1])
    sys.argv[:2] = ["podslice"]
    main()

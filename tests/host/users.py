"""The user `lab`: without privileges, optionally with a service manager."""

from contextlib import contextmanager

NAME, UID = "lab", 1000
RUNTIME_DIR = f"/run/user/{UID}"
MANAGER = f"user@{UID}.service"
SESSION = {"XDG_RUNTIME_DIR": RUNTIME_DIR}


def podslice(machine, *arguments, check=True, env=None, **more):
    """Run a verb as the user, without a session."""
    return machine.module("tests.host.as_user", NAME, *arguments, check=check, env=env, **more)


@contextmanager
def user_manager(machine):
    """Yield a function for `podslice VERB --user …` as the user, whose service manager is up."""
    machine.run("systemctl", "start", MANAGER)

    def run(verb, *arguments, **more):
        return podslice(machine, verb, "--user", *arguments, env=SESSION, **more)

    try:
        yield run
    finally:
        command(machine, "systemctl", "--user", "stop", "kubepods*.slice", check=False)
        machine.run("rm", "-rf", f"{RUNTIME_DIR}/podslice")
        machine.run("systemctl", "stop", MANAGER)


def command(machine, *argv, **more):
    """Run any command as the user, with a session."""
    variables = (f"{key}={value}" for key, value in SESSION.items())
    return machine.run("runuser", "-u", NAME, "--", "env", *variables, *argv, **more)

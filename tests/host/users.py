"""The user `lab`: somebody without rights, who may have a service manager of the own."""

from contextlib import contextmanager

NAME, UID = "lab", 1000
RUNTIME_DIR = f"/run/user/{UID}"
MANAGER = f"user@{UID}.service"
SESSION = {"XDG_RUNTIME_DIR": RUNTIME_DIR}


def podslice(machine, *arguments, check=True, env=None, **more):
    """A verb as the user, without a session."""
    return machine.module("tests.host.as_user", NAME, *arguments, check=check, env=env, **more)


@contextmanager
def own_manager(machine):
    """Gives `podslice VERB --user …` as the user, whose service manager is up meanwhile."""
    machine.run("systemctl", "start", MANAGER)

    def run(verb, *arguments, **more):
        return podslice(machine, verb, "--user", *arguments, env=SESSION, **more)

    try:
        yield run
    finally:
        command(machine, "systemctl", "--user", "stop", "kubepods*.slice", check=False)
        machine.run("rm", "-rf", f"{RUNTIME_DIR}/podslice")
        machine.run("systemctl", "stop", MANAGER)


def command(machine, *argv, check=True):
    """Any command as the user, with a session."""
    variables = (f"{key}={value}" for key, value in SESSION.items())
    return machine.run("runuser", "-u", NAME, "--", "env", *variables, *argv, check=check)

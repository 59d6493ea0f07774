"""A real systemd to test against: in namespaces of this host, or in a virtual machine.

`python3 -m tests.lab --help` lists the commands. The modules:

    machine      the interface of all machines, and its values
    remote       a machine reached through the agent inside it (guest/agent.py)
    namespace    systemd in namespaces of this host: native speed
    vm           systemd in qemu, restored from a snapshot: cgroup v2, OOM, pressure, reboot
    local        the present machine, for tests that run inside one
    image        the Debian that both boot
    deps         packages that the lab needs on the host
    extras       packages that only some tests need, in a machine
    keeper       the process that holds a machine, and stops it with its owner
"""

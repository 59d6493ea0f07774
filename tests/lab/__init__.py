"""A real systemd to test against: in namespaces of this host, or in a virtual machine.

`python3 -m tests.lab --help` has the commands. The modules:

    machine      what every kind of machine offers, and the values it speaks in
    remote       a machine reached through the agent inside it (guest/agent.py)
    namespace    systemd in namespaces of this host: native speed
    vm           systemd in qemu, restored from a snapshot: cgroup v2, OOM, pressure, reboot
    local        the machine we are on, for tests which are themselves inside one
    image        the Debian which boots in both
    deps         what the host needs for all this
    extras       packages that only some tests need, in a machine
    keeper       the process which holds a machine, and takes it down with its owner
"""

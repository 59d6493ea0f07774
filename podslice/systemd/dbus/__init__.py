"""D-Bus: a connection to a message bus, without knowledge of systemd."""

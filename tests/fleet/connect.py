"""Connect to sshd on the loopback interface of the network namespace, and pass the socket to ssh.

A ProxyCommand with ProxyUseFdpass.
"""

import socket
import sys

connection = socket.create_connection(("127.0.0.1", 22))
with socket.socket(fileno=sys.stdout.fileno()) as ssh:
    socket.send_fds(ssh, [b"\0"], [connection.fileno()])

"""Connect to sshd, and pass the socket to ssh: a ProxyCommand with ProxyUseFdpass.

    connect.py [SOCKET]

Without the path of a socket, sshd is on the loopback interface of the network namespace.
"""

import socket
import sys

if len(sys.argv) > 1:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
else:
    connection = socket.create_connection(("127.0.0.1", 22))
with socket.socket(fileno=sys.stdout.fileno()) as ssh:
    socket.send_fds(ssh, [b"\0"], [connection.fileno()])

"""The agent's HTTP server, and the documents that it serves."""

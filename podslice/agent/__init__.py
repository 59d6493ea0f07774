"""The agent, which keeps a node as its manifests and its configuration request."""

"""The agent: keeps a node as its manifests and its settings say, for as long as it runs."""

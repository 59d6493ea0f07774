"""Kubernetes' node resource model on any systemd host, with systemd as its only driver."""

__version__ = "0.1.0"

"""The pods and the configuration of a kubelet."""

"""The API of a kubelet; see `kubelet_api`."""

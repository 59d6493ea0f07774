"""Projects of docker compose and podman-compose: their budget as a pod, and their place in it."""

"""Start processes in pods, move them into pods, and locate them."""

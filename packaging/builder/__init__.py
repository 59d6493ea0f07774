"""What `packaging/build.py` builds packages with."""

"""The parts of `packaging/build.py`."""

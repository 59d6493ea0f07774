"""What the kernel shows: readers of /proc, /sys and control groups, and watches on files."""

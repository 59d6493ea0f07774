"""podslice with one call for each unit, for any number of them.

python3 unbatched.py VERB [ARGUMENT]...
"""

import sys

from podslice.__main__ import main
from podslice.reconcile import act

if not isinstance(act.BATCH_MIN, int):
    raise TypeError("act.BATCH_MIN is the number of units below which there are no batches")
act.BATCH_MIN = sys.maxsize

if __name__ == "__main__":
    main()

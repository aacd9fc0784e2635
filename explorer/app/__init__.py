"""The page: widgets that carry choices in and pictures out. No mathematics lives here."""

import os

# Read by torch when it is first imported. OpenMP threads that spin stall each other as soon as anything else runs, and
# beside a page a browser does. Only here: where nothing else runs, they make a small model up to four times as fast.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

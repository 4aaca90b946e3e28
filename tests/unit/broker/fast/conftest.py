"""Without the native lane nothing takes the fast path, so that there is nothing to compare."""

from escrowmq.lane.native import requests_lane

collect_ignore_glob = [] if requests_lane is not None else ["test_*.py"]

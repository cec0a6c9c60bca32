"""Suite x scorer -> report; the toy world; the studies of claims."""

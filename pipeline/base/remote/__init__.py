"""The one client of remote servers: calls, their faults, replicas, pace and budget."""

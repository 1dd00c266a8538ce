"""The Prefect adapter: flows, tasks, server, deployments, notifications and stale flow runs."""

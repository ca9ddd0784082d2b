"""Do dashboards and rules show what they promise: every query, in a real Prometheus that scrapes a running demo."""

"""`make bench-dashboards`: every query of every dashboard and rule, asked of a real Prometheus."""

"""The dashboards for Grafana, as programs that write them: `python -m dashboards`.

Here belong the panels and their queries. The JSON goes to `deploy/chart/dashboards`, because Helm reads no file
outside of a chart. Grafana's own SDK builds it, so fields and values are those of Grafana's schema. What always
holds: each panel answers a question that its description asks, has a unit, and says why where it may be empty.
"""

"""The alerts: states that the events of the stream show, kept firing in Alertmanager until they end.

Here belongs the way from the stream to Alertmanager. The events themselves are in `plimsoll.events`; alerts that rest
on metrics are rules of Prometheus, in the chart.
"""

"""The state on disk that outlives the monitor: the events that wait, the table of tasks, the journal position."""

"""Building blocks of every part: entry point, settings, web server, errors, backoff, processes, threads, times."""

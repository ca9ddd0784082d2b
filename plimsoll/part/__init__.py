"""What every part of Plimsoll is made with: entry point, settings, web server, errors, processes, times."""

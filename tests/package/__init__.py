"""The wheel in clean environments. `test_wheel` has the cheap part; `make wheel-check` runs the rest."""

"""Tests of `plimsoll doctor`: each breaks a real part and reads the finding."""

"""Tests of the monitor: its core by values, its adapters on real files and servers, the whole on the emulator."""

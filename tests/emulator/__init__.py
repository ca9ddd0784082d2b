"""The emulator under real programs: pynvml, and C against NVIDIA's own headers."""

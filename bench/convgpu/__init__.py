"""ConVGPU's Tables IV and V: four wait policies, replayed, and in small on the emulator."""

"""The placer: keeps the sorted list by the monitors' events, decides where each pod goes, and binds it there."""

"""The cluster: keeps the score list from the events, decides where each pod goes, and binds it there."""

"""Kang et al.'s Tables IV and V (IJASEIT 2024, §III.A) at scale, and a burst in which the paper's method fails."""

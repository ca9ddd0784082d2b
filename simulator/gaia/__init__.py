"""Gaia's experiments (S. Song et al., ISPA 2018, §IV): the GPUs of one node that a container gets, and how fast."""

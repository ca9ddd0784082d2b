"""Tests of the share scheduler, over simulated GPUs and programs."""

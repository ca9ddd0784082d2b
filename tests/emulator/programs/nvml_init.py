"""Initialises NVML, and ends with the code of its error."""

import sys

import pynvml

try:
    pynvml.nvmlInit()
except pynvml.NVMLError as error:
    sys.exit(error.value)

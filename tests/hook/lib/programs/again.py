"""A program with CUDA that another one becomes by exec."""

import sys
import time

from tests.programs.cuda import cuda

cuda.context()
sys.stdout.write("again\n")
sys.stdout.flush()
time.sleep(600)  # The test kills this process.

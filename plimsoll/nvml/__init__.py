"""NVML: the readings, the library behind them, and the one thread that may wait for the driver."""

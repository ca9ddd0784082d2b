"""When GPUs join and leave the pool: values and the time in, steps out."""

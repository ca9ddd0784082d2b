"""The webhook's pure core: reviews and times in, answers and plans out."""

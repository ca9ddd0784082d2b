"""ConVGPU's experiment (IEEE CLUSTER 2017, §IV): six types of container on one 5 GB GPU, four wait policies."""

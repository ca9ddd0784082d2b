"""A real Kubernetes for the tests: its Go modules, the build, and the place of its binaries."""

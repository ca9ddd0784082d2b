"""A real Kubernetes for the tests: which modules it is built from, the build, and where its binaries lie."""

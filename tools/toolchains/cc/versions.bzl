"""What the pinned C++ toolchain builds for: data."""

# The glibc that binaries may ask for at most: manylinux_2_28's.
GLIBC = "2.28"

CPUS = ["x86_64"]

# GCC older than this has no <format>.
MINIMUM_GCC = 13

# Clang older than this cannot compile libstdc++'s <format>.
MINIMUM_CLANG = 17

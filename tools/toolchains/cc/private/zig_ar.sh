#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The archiver that Bazel calls: llvm-ar of the ziglang wheel.
set -euo pipefail
exec "$DEEP_JIT_ZIG/zig" ar "$@"

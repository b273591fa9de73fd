#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The compiler driver that Bazel calls: clang of the ziglang wheel to compile, its ld.lld to link.
# DEEP_JIT_ZIG is the zig repository, relative to the execution root; DEEP_JIT_ZIG_CPU the target's.
set -euo pipefail

zig=$DEEP_JIT_ZIG
rt=$zig/rt/$DEEP_JIT_ZIG_CPU
export ZIG_LIB_DIR=$zig/lib
scratch=$(mktemp -d "${TMPDIR:-/tmp}/zig.XXXXXXXX")
trap 'rm -rf "$scratch"' EXIT
export ZIG_LOCAL_CACHE_DIR=$scratch ZIG_GLOBAL_CACHE_DIR=$scratch

arguments=()
for argument in "$@"; do
  if [[ $argument == @* ]]; then
    mapfile -t -O "${#arguments[@]}" arguments <"${argument#@}"
  else
    arguments+=("$argument")
  fi
done

for argument in "${arguments[@]}"; do
  if [[ $argument == -c || $argument == -fsyntax-only || $argument == -E ]]; then
    "$zig/zig" c++ "${arguments[@]}"
    exit
  fi
done

# Link: the driver's flags into ld.lld's. zig's own driver would build libc++ again for each new
# combination of flags, and exports it from shared libraries.
shared=0
flags=()
for argument in "${arguments[@]}"; do
  case $argument in
    -shared) shared=1 ;;
    -Wl,*)
      IFS=, read -ra parts <<<"${argument#-Wl,}"
      flags+=("${parts[@]}")
      ;;
    -pthread | -lpthread | -ldl | -lm | -lrt | -lc | -lstdc++ | -lc++) ;; # always linked, below
    -fuse-ld=* | -static-lib* | -no-pie | -target | "$DEEP_JIT_ZIG_CPU"-linux-gnu*) ;;
    *) flags+=("$argument") ;;
  esac
done
case $DEEP_JIT_ZIG_CPU in
  x86_64) emulation=elf_x86_64 loader=/lib64/ld-linux-x86-64.so.2 ;;
  aarch64) emulation=aarch64linux loader=/lib/ld-linux-aarch64.so.1 ;;
  *)
    echo "zig_cxx.sh: no linker emulation is known for the CPU '$DEEP_JIT_ZIG_CPU'" >&2
    exit 1
    ;;
esac
common=(-m "$emulation" --error-limit=0 --build-id=none --hash-style=gnu --gc-sections --eh-frame-hdr
  -O2 -z now -z relro -z noexecstack --as-needed)
runtime=("$rt/libc++.a" "$rt/libc++abi.a" "$rt/libunwind.a" "$rt"/lib*.so.* "$rt/libc_nonshared.a"
  "$rt/libcompiler_rt.a")
if ((shared)); then
  "$zig/zig" ld.lld "${common[@]}" -shared --exclude-libs=ALL "${flags[@]}" "${runtime[@]}"
else
  "$zig/zig" ld.lld "${common[@]}" -z defs --dynamic-linker="$loader" "$rt/crt1.o" "${flags[@]}" "${runtime[@]}"
fi

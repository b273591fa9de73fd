# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Runs a command inside the Debian root file system, with the workspace, the user's cache folder, the
# Python installations, CUDA and pip's configuration at their own paths.
#
#   debian_root_mounts ROOT REPOSITORY      # fills the array DEBIAN_MOUNTS, bubblewrap's arguments
#   debian_root_exec COMMAND ARGS...        # replaces this process
#
# bubblewrap without a PID namespace of its own: the Bazel server outlives the call, and its Linux
# sandbox may make namespaces inside.

# The absolute paths that pip's configuration and environment name (find-links, local indexes,
# constraints, certificates), one a line.
debian_pip_paths() {
  local python
  {
    env | grep '^PIP_' | cut -d= -f2- || true
    for python in python3 python; do
      type -P "$python" >/dev/null && "$python" -m pip config list 2>/dev/null && break
    done
    # A local index keeps its files beside its "simple" folder.
  } | grep -oE "(file://)?/[^'\" ]+" | sed -e 's#^file://##' -e 's#/simple/*$##' | sort -u || true
}

debian_root_mounts() {
  local root=$1 repository=$2 path home=${HOME:-/root}
  local cache_home=${XDG_CACHE_HOME:-$home/.cache}
  mkdir -p "$cache_home"
  DEBIAN_MOUNTS=(--bind "$root" / --dev-bind /dev /dev --dev-bind /proc /proc --ro-bind /sys /sys)
  # Read and write: where Bazel, pip and the compilers keep their caches.
  for path in "$cache_home" "$(dirname "$(debian_cache_home)")" /tmp; do
    DEBIAN_MOUNTS+=(--bind "$path" "$path")
  done
  # Read only, where they are there: name resolution, certificates, interpreters, CUDA for
  # --config=local_cuda, pip's configuration.
  while IFS= read -r path; do
    [[ -e $path ]] && DEBIAN_MOUNTS+=(--ro-bind "$path" "$path")
  done < <(
    printf '%s\n' /etc/resolv.conf /etc/hosts /etc/ssl/certs /usr/share/ca-certificates \
      /usr/local/share/ca-certificates "${PYENV_ROOT:-$home/.pyenv}" \
      "${CUDA_HOME:-}" /usr/local/cuda \
      /etc/pip.conf /etc/xdg/pip "$home/.config/pip" "$home/.pip"
    debian_pip_paths
  )
  # Last, so that the workspace may lie below one of the read-only ones.
  DEBIAN_MOUNTS+=(--bind "$repository" "$repository" --bind "$PWD" "$PWD")
}

debian_root_exec() {
  exec "$(debian_bwrap "$(debian_cache_home)")" "${DEBIAN_MOUNTS[@]}" --chdir "$PWD" \
    --setenv PATH /usr/sbin:/usr/bin:/sbin:/bin -- "$@"
}

# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Prepares the Debian unstable root file system that holds Bazel, its rules and the C++ libraries.
#
#   root=$(debian_root_prepare)     # prints the folder; progress and errors go to stderr
#
# One folder per list of packages: <cache>/debian/<hash>. It is made as <hash>.partial, in two stages
# that are marked when done, and renamed when whole; a second run takes up after the last stage that
# was finished, and two at once wait for each other on a lock. The machine's own packages are never
# touched: debootstrap and bubblewrap are unpacked beside the root when they are not installed.

debian_cache_home() {
  local base=${DEEP_JIT_CACHE_HOME:-}
  [[ -n $base ]] || base=${XDG_CACHE_HOME:-${HOME:?bazelw: set HOME or DEEP_JIT_CACHE_HOME}/.cache}/deep_jit
  printf '%s\n' "$base/debian"
}

debian_say() { printf 'bazelw: %s\n' "$*" >&2; }

debian_fail() {
  printf 'bazelw: error: %s\n' "$@" >&2
  exit 1
}

debian_packages() { grep -v '^#' "$(dirname "${BASH_SOURCE[0]}")/packages.txt"; }

# The address of the Debian archive, as this machine's own apt has it.
debian_mirror() {
  if [[ -n ${DEEP_JIT_DEBIAN_MIRROR:-} ]]; then
    printf '%s\n' "$DEEP_JIT_DEBIAN_MIRROR"
    return
  fi
  # A security archive has no unstable suite; the main archive's path ends in /debian on every mirror.
  # (Reads to the end: with pipefail, a reader that leaves early would fail the writer.)
  # shellcheck disable=SC2016 # apt fills in $(REPO_URI)
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    awk '/\/debian\/?$/ && !found { print; found = 1 }'
}

debian_check_machine() {
  local cache=$1 tool
  local hint='To go without it, install Bazelisk (or Bazel 7.7.1) and put it on PATH.'
  if ! type -P apt-get dpkg >/dev/null; then
    debian_fail 'no bazel or bazelisk on PATH, and this is not a Debian-like machine (no apt-get).' "$hint"
  fi
  if (($(id -u) != 0)); then
    debian_fail "no bazel or bazelisk on PATH; preparing Debian's needs root (uid here: $(id -u))." "$hint"
  fi
  for tool in wget gpgv flock unshare tar xz; do
    type -P "$tool" >/dev/null ||
      debian_fail "'$tool' is needed to prepare Debian's Bazel and is not on PATH." \
        "Install its Debian package. $hint"
  done
  mkdir -p "$cache" || debian_fail "cannot make the folder $cache." 'Set DEEP_JIT_CACHE_HOME to a writable one.'
}

debian_check_space() {
  local cache=$1 need_kib=$((4 * 1024 * 1024)) free_kib
  free_kib=$(df -Pk "$cache" | awk 'NR == 2 { print $4 }')
  ((free_kib >= need_kib)) ||
    debian_fail "$cache has $((free_kib / 1024)) MiB free; the Debian root needs $((need_kib / 1024)) MiB." \
      'Free some space, or set DEEP_JIT_CACHE_HOME to a folder on another disk.'
}

# Prints the path of a program of a Debian package: the installed one, else one unpacked into the cache.
debian_tool() {
  local cache=$1 program=$2 package=$3 path=$4
  if type -P "$program" >/dev/null; then
    type -P "$program"
    return
  fi
  local tools=$cache/tools/$package
  if [[ ! -e $tools/.done ]]; then
    debian_say "unpacking $package (not installed on this machine)"
    rm -rf "$tools"
    mkdir -p "$tools"
    (
      cd "$tools"
      apt-get download -qq "$package" >/dev/null 2>&1 || {
        apt-get update -qq >&2
        apt-get download -qq "$package" >&2
      }
      dpkg -x ./*.deb .
    ) || debian_fail "cannot get the Debian package $package." "Install it: apt-get install $package"
    touch "$tools/.done"
  fi
  printf '%s\n' "$tools/$path"
}

debian_bwrap() { debian_tool "$1" bwrap bubblewrap usr/bin/bwrap; }

# Runs a command as root inside the root file system under construction, with the network.
debian_run_inside() {
  local cache=$1 root=$2 bwrap
  shift 2
  bwrap=$(debian_bwrap "$cache")
  "$bwrap" --bind "$root" / --dev-bind /dev /dev --proc /proc --ro-bind /sys /sys --tmpfs /tmp \
    --ro-bind /etc/resolv.conf /etc/resolv.conf \
    --setenv PATH /usr/sbin:/usr/bin:/sbin:/bin --setenv DEBIAN_FRONTEND noninteractive \
    --setenv LC_ALL C.UTF-8 "$@"
}

debian_stage_base() {
  local cache=$1 root=$2 mirror=$3 debootstrap
  debian_say "1/2 Debian unstable base system from $mirror"
  # A killed debootstrap may leave a half system; its mounts were private and are gone.
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  debootstrap=$(debian_tool "$cache" debootstrap debootstrap usr/sbin/debootstrap)
  local share=/usr/share/debootstrap
  [[ $debootstrap == "$cache"/* ]] && share=${debootstrap%/usr/sbin/debootstrap}/usr/share/debootstrap
  DEBOOTSTRAP_DIR=$share unshare --mount -- "$debootstrap" --variant=minbase unstable "$root" "$mirror" \
    >"$root.log" 2>&1 || {
    tail -n 15 "$root.log" >&2
    debian_fail "debootstrap failed; the whole log is $root.log." 'Mend the cause and run bazelw again.'
  }
  touch "$root/.stage-base"
}

debian_stage_packages() {
  local cache=$1 root=$2
  debian_say '2/2 Bazel, its rules, the C++ libraries and a C++ compiler'
  # The machine's way out (proxies, retries); apt's other settings are the root's own.
  apt-config dump 2>/dev/null | grep -E '^Acquire::(http|https|Retries)' >"$root/etc/apt/apt.conf.d/90machine" || true
  # A mirror behind https is checked against this machine's certificates; the new root has none yet.
  local certificates=/etc/ssl/certs/ca-certificates.crt
  if [[ -e $certificates ]]; then
    cp "$certificates" "$root/etc/machine-certificates.crt"
    echo 'Acquire::https::CaInfo "/etc/machine-certificates.crt";' >>"$root/etc/apt/apt.conf.d/90machine"
  fi
  # An unstable mirror that is a frozen copy has a Release file past its date; it is still signed.
  echo 'Acquire::Check-Valid-Until "false";' >>"$root/etc/apt/apt.conf.d/90machine"
  local packages
  mapfile -t packages < <(debian_packages)
  debian_run_inside "$cache" "$root" -- sh -ec '
    dpkg --configure -a
    apt-get update
    apt-get install -y --no-install-recommends "$@"
    apt-get clean' install "${packages[@]}" </dev/null >"$root.log" 2>&1 || {
    # What a failure left half configured may never configure again: the next run starts over.
    rm -f "$root/.stage-base"
    tail -n 15 "$root.log" >&2
    debian_fail "installing Bazel into the Debian root failed; the whole log is $root.log." \
      'Mend the cause and run bazelw again.'
  }
  touch "$root/.stage-packages"
}

debian_root_prepare() {
  local cache key root partial mirror start=$SECONDS
  cache=$(debian_cache_home)
  key=$(debian_packages | sha256sum | cut -c1-16)
  root=$cache/$key
  if [[ ! -e $root/.ready ]]; then
    debian_check_machine "$cache"
    partial=$cache/$key.partial
    # The lock is on a descriptor of this subshell only: neither Bazel nor a daemon inherits it.
    (
      flock --nonblock 9 || {
        debian_say 'another bazelw is preparing the Debian root; waiting for it'
        flock 9
      }
      [[ ! -e $root/.ready ]] || exit 0
      debian_check_space "$cache"
      mirror=$(debian_mirror)
      [[ -n $mirror ]] ||
        debian_fail "apt's configuration names no Debian archive." 'Set DEEP_JIT_DEBIAN_MIRROR to one.'
      debian_say "no bazel or bazelisk on PATH: preparing Debian's Bazel in $root (once, about two minutes)"
      [[ -e $partial/.stage-base ]] || debian_stage_base "$cache" "$partial" "$mirror" 9>&-
      [[ -e $partial/.stage-packages ]] || debian_stage_packages "$cache" "$partial" 9>&-
      touch "$partial/.ready"
      mv -T "$partial" "$root"
      rm -f "$partial.log"
      debian_say "ready after $((SECONDS - start)) s"
    ) 9>"$cache/lock" || exit 1
  fi
  printf '%s\n' "$root"
}

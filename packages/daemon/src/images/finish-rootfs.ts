/**
 * The last step inside a new root file system: the user, neutral identity files, the public package
 * sources, and none of what the build or the host left behind. Run by mmdebstrap as the (mapped)
 * root user with the tree as its argument; given as text because in a user namespace the script's
 * own folder may be out of reach.
 */

/** A shell script that finishes the tree `$1`. @param script run inside the tree before it is cleaned */
export function finishRootfs(suite: string, hostName: string, script = ""): string {
  return `set -eu
root="$1"

chroot "$root" useradd --create-home --uid 1000 --user-group --shell /bin/bash user
install -d -m 0755 "$root/etc/perdure" "$root/etc/perdure/resume.d"
${script === "" ? "" : inside(script)}
# Neutral identity: every agent gets its own when it is made.
printf '%s\\n' ${hostName} > "$root/etc/hostname"
printf '127.0.0.1 localhost\\n::1 localhost ip6-localhost ip6-loopback\\n' > "$root/etc/hosts"
: > "$root/etc/machine-id"
rm -f "$root/etc/resolv.conf" "$root/var/lib/dbus/machine-id" "$root/var/lib/systemd/random-seed"
: > "$root/etc/resolv.conf"
rm -f "$root"/etc/ssh/ssh_host_*
chmod 0644 "$root/etc/hostname" "$root/etc/hosts" "$root/etc/machine-id" "$root/etc/resolv.conf"

# The public sources, whatever mirror the build used.
cat > "$root/etc/apt/sources.list" <<'SOURCES'
deb http://deb.debian.org/debian ${suite} main
deb http://deb.debian.org/debian ${suite}-updates main
deb http://deb.debian.org/debian-security ${suite}-security main
SOURCES
chmod 0644 "$root/etc/apt/sources.list"
rm -f "$root"/etc/apt/sources.list.d/* "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root"/etc/apt/auth.conf.d/*
if [ -e "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap" ]; then
  mv "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap" "$root/etc/dpkg/dpkg.cfg.d/no-documentation"
fi

# Left-overs of the build.
rm -f "$root"/etc/*- "$root/etc/.pwd.lock" "$root"/var/cache/debconf/*-old
rm -f "$root/var/cache/ldconfig/aux-cache" "$root"/var/lib/dpkg/*-old
rm -rf "$root"/var/log/apt "$root/var/log/dpkg.log" "$root/var/log/alternatives.log"
rm -rf "$root/var/log/bootstrap.log" "$root/root/.cache"
rm -rf "$root"/var/lib/apt/lists/*
`;
}

/** As a word of its own, whatever is in it. */
function inside(script: string): string {
  const word = `'${script.replaceAll("'", `'\\''`)}'`;
  return `chroot "$root" /bin/sh -eu -c ${word} || {
  echo "E: the finish script ended with exit code $?" >&2
  exit 1
}
`;
}

#!/bin/sh
# Runs make targets (default: those of the README's two commands) in a new Debian that has
# nothing but its base, git, make and this machine's Go, from a clone of HEAD and with empty
# caches. It shares the kernel, and leaves nothing behind. Needs root and debootstrap.
set -eu

if [ "${1-}" = inside ]; then # in a mount namespace of its own
	root=$2
	shift 2
	mount --make-rprivate /
	mount --bind "$root" "$root" # a root folder is a mount point
	mount -t proc proc "$root/proc"
	mount --rbind /sys "$root/sys"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs tmpfs "$root/run"
	mkdir -p "$root/usr/local/go"
	mount --bind -o ro "$(go env GOROOT)" "$root/usr/local/go"
	# The mounts that the agent reads are those of process 1. Inside, that is one in here.
	chroot "$root" sleep infinity &
	trap 'kill $!' EXIT
	mount --bind "$root/proc/$!" "$root/proc/1"
	for target; do
		began=$(date +%s)
		env -i HOME=/root TERM=dumb PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin \
			GOPROXY="$(go env GOPROXY)" GOSUMDB="$(go env GOSUMDB)" GOTOOLCHAIN="$(go env GOTOOLCHAIN)" \
			GOFLAGS=-buildvcs=false DEBIAN_FRONTEND=noninteractive \
			http_proxy="${http_proxy-}" https_proxy="${https_proxy-}" no_proxy="${no_proxy-}" \
			chroot "$root" make -C /srv/kernosis "$target"
		echo "fresh: make $target: $(($(date +%s) - began)) s"
	done
	du -sh "$root/root/.cache" "$root/root/go" | sed "s|$root|fresh: disk: |"
	exit
fi

[ "$(id -u)" = 0 ] || { echo "fresh: needs root" >&2; exit 2; }
command -v debootstrap >/dev/null || { apt-get update -qq && apt-get install -y --no-install-recommends debootstrap; }

source=$(git rev-parse --show-toplevel)
root=$(mktemp -d "${TMPDIR:-/var/tmp}/kernosis-fresh-XXXXXX")
chmod 755 "$root" # it becomes the root folder of all users inside
trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 130' INT TERM

# The suite and the mirror that this machine uses.
targets=${*:-demo test}
read -r mirror suite <<END
$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | head -n 1)
END
debootstrap --variant=minbase --include=git,make,ca-certificates "$suite" "$root" "$mirror" >"$root.log" ||
	{ cat "$root.log"; rm -f "$root.log"; exit 1; }
rm -f "$root.log"
cp -r /etc/apt/apt.conf.d /etc/apt/sources.list* "$root/etc/apt/"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" # with those of a proxy
git clone -q "$source" "$root/srv/kernosis"
# shellcheck disable=SC2086 # targets are words
unshare --mount "$0" inside "$root" $targets

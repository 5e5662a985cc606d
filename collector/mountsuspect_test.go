package collector

import (
	"testing"
	"testing/synctest"
	"time"
)

// An error of a filesystem says nothing of the one that is mounted there next,
// which may be the same, repaired.
func TestMountAnewIsNoSuspect(t *testing.T) {
	for _, mount := range []string{healthyXFS, healthyExt4 + ",errors=remount-ro"} {
		synctest.Test(t, func(t *testing.T) {
			n := newMountNode(t)
			n.mounts(mount)
			n.look()
			n.source.Notify(8<<20, false)
			n.mounts()
			n.look()
			n.got = nil // an xfs may have been told
			n.mounts(mount)
			n.look()
			time.Sleep(2 * suspectFor)
			n.look()
			n.expect()
		})
	}
}

// An ext4 whose journal is aborted refuses writes, also where errors shall not
// end them, and up to v6.15 nothing shows it.
func TestMountErrorThatEndsWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMountNode(t)
		n.mounts(healthyExt4 + ",errors=continue")
		n.look()
		n.source.Notify(8<<20, false)
		n.source.Notify(8<<20, true)
		for again := n.look(); again > 0; again = n.look() {
			time.Sleep(again)
		}
		n.expect("mount.readonly ext4 sda at /data: error-policy")
	})
}

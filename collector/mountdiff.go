package collector

import (
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// Reasons of [event.MountReadOnly] and [event.MountWritable].
const (
	reasonSuperReadOnly = "superblock-ro" // the filesystem turned read-only under a writable mount
	reasonEmergencyRO   = "emergency-ro"  // shown by ext4 from 6.15 on
	reasonShutdown      = "shutdown"      // all I/O stopped
	reasonErrorPolicy   = "error-policy"  // an error that ends writing, which nothing shows
	reasonRemounted     = "remounted"
	reasonUnmounted     = "unmounted"
)

// fsKey identifies a mounted filesystem: st_dev of its files.
type fsKey struct{ major, minor uint32 }

// change is what happened to one filesystem between two mount tables.
type change struct {
	key    fsKey
	mount  hostfs.Mount // its first mount; if unmounted, the last known one
	faulty bool         // it refuses writes; false: it no longer does
	reason string
	// deliberate: an administrator made it read-only, unless the kernel recorded an error.
	deliberate bool
}

// mounted is a filesystem as the mount table shows it: its mounts in the kernel's order, so the
// oldest first. Nil: it is not mounted.
type mounted []*hostfs.Mount

// diff returns how filesystems on devices changed from one mount table to the next, in the order of
// the new table. old is nil at the start.
//
// The mounts show whether the kernel or an administrator made a filesystem read-only: "mount -o
// remount,ro" makes the filesystem and one of its mounts read-only, the kernel only the filesystem.
func diff(old, now []hostfs.Mount) []change {
	before, oldKeys := byFilesystem(old)
	after, newKeys := byFilesystem(now)
	var changes []change
	for _, key := range newKeys {
		m, was := after[key], before[key]
		if was != nil && !sameFilesystem(was[0], m[0]) {
			// The number of a loop device or volume was reused.
			changes = append(changes, change{key: key, mount: *was[0], reason: reasonUnmounted})
			was = nil
		}
		reason, deliberate := m.refusal(was)
		oldReason := ""
		if was != nil {
			oldReason = was.visible()
		}
		switch {
		case reason != "":
			changes = append(changes, change{key: key, mount: *m[0], faulty: true, reason: reason, deliberate: deliberate})
		case oldReason != "" && m.visible() == "":
			changes = append(changes, change{key: key, mount: *m[0], reason: reasonRemounted})
		}
	}
	for _, key := range oldKeys {
		if after[key] == nil {
			changes = append(changes, change{key: key, mount: *before[key][0], reason: reasonUnmounted})
		}
	}
	return changes
}

// refusal returns how a filesystem began to refuse writes since the last table, or "" if it did not,
// and whether that looks deliberate. was is nil if it was not mounted then.
func (m mounted) refusal(was mounted) (reason string, deliberate bool) {
	reason = m.visible()
	if reason == "" || was != nil && was.visible() == reason {
		return "", false
	}
	if reason != reasonSuperReadOnly {
		return reason, false
	}
	if was == nil {
		// Its earlier state is unknown. Filesystems of other types are read-only by nature, and a
		// deliberate read-only mount of one of these types also sets the mount read-only.
		if mayTurnReadOnly(m[0].FSType) && m.writableApart() {
			return reason, false
		}
		return "", false
	}
	for _, mount := range m {
		wasWritable := func(o *hostfs.Mount) bool { return o.Path == mount.Path && !o.MountReadOnly }
		if mount.MountReadOnly && slices.ContainsFunc(was, wasWritable) {
			return reason, true
		}
	}
	if m.writable() == nil {
		return "", false // it was not mounted for writing
	}
	return reason, false
}

// writable returns the oldest mount that is not read-only, or nil. The first mount may be read-only:
// on some systems the root directory is read-only, and /var is another mount of the same filesystem.
func (m mounted) writable() *hostfs.Mount {
	i := slices.IndexFunc(m, func(mount *hostfs.Mount) bool { return !mount.MountReadOnly })
	if i < 0 {
		return nil
	}
	return m[i]
}

// writableApart reports whether the first mount, or one of another part of the filesystem, is not
// read-only, such as a subvolume mounted on /var. Writable parts of a read-only first mount prove
// nothing: an administrator's remount leaves bind mounts as they are.
func (m mounted) writableApart() bool {
	under := strings.TrimSuffix(m[0].Root, "/") + "/"
	return !m[0].MountReadOnly || slices.ContainsFunc(m, func(mount *hostfs.Mount) bool {
		return !mount.MountReadOnly && !strings.HasPrefix(mount.Root+"/", under)
	})
}

// visible returns how the table shows that the filesystem refuses writes, or "" if it does not.
func (m mounted) visible() string {
	switch f := m[0]; {
	case f.Shutdown:
		return reasonShutdown
	case f.EmergencyRO:
		return reasonEmergencyRO
	case f.SuperReadOnly:
		return reasonSuperReadOnly
	}
	return ""
}

// sameFilesystem reports whether two mounts under one number are of one filesystem. A device may have
// several names, and the name alone remains of one that was unplugged.
func sameFilesystem(a, b *hostfs.Mount) bool {
	sameDevice := a.DeviceMajor != 0 && a.DeviceMajor == b.DeviceMajor && a.DeviceMinor == b.DeviceMinor
	return a.FSType == b.FSType && (sameDevice || a.Source == b.Source)
}

// byFilesystem groups mounts by filesystem, and returns the keys in the table's order.
func byFilesystem(mounts []hostfs.Mount) (map[fsKey]mounted, []fsKey) {
	all := map[fsKey]mounted{}
	var keys []fsKey
	for i := range mounts {
		m := &mounts[i]
		if !onDevice(m) {
			continue
		}
		key := fsKey{m.Major, m.Minor}
		if all[key] == nil {
			keys = append(keys, key)
		}
		all[key] = append(all[key], m)
	}
	return all, keys
}

// onDevice reports whether a mount has a disk: others never turn read-only by an error.
func onDevice(m *hostfs.Mount) bool {
	return m.Major != 0 || m.FSType == "btrfs" || m.FSType == "bcachefs"
}

// mayTurnReadOnly reports whether filesystems of this type are written to and turn read-only after
// an error (some depending on their errors= option).
func mayTurnReadOnly(fsType string) bool {
	switch fsType {
	case "ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "f2fs", "jfs", "nilfs2",
		"vfat", "msdos", "exfat", "ntfs3", "ocfs2", "gfs2":
		return true
	}
	return false
}

// remountPatience is how long a filesystem may be read-only under writable mounts without a known
// error. "mount -o remount,ro" makes the filesystem read-only, then flushes its journal, and only
// then makes the mount read-only: meanwhile the table looks like after an error. A flush takes
// milliseconds, on a busy disk some seconds.
const remountPatience = 5 * time.Second

// holdBack returns the changes that can be reported now. It drops an administrator's remounts. The
// others may be half of one: held has these, with the time since when they are held back; again is when
// to check them.
func (m *mountSource) holdBack(changes []change, now time.Time) (ready []change, held map[fsKey]time.Time, again time.Duration) {
	held = map[fsKey]time.Time{}
	for _, c := range changes {
		if c.deliberate {
			if m.erred(&c.mount) {
				ready = append(ready, c)
			}
			continue
		}
		since, ok := m.held[c.key]
		if !ok {
			since = now
		}
		wait := remountPatience - now.Sub(since)
		if !c.faulty || c.reason != reasonSuperReadOnly || wait <= 0 || m.suspected(c.key) {
			ready = append(ready, c)
			continue
		}
		held[c.key] = since
		again = sooner(again, wait)
	}
	return ready, held, again
}

// erred reports whether an ext4 recorded an error that ends writing since the last look. It reads the
// kernel's record, because the report of the error may arrive later than the table shows it.
func (m *mountSource) erred(mount *hostfs.Mount) bool {
	at, err := m.env.fs.Ext4WritingEnded(mount, m.env.devices.Device(mount.Major, mount.Minor).Name)
	return err == nil && !at.IsZero() && at.Unix() >= m.looked.Unix()
}

// suspected reports whether the filesystem had an error recently.
func (m *mountSource) suspected(key fsKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.suspects[key]
	return ok
}

// keep returns the table to compare the next one with: now, but with the old mounts of held-back
// filesystems, so that a lasting change is found again.
func keep(old, now []hostfs.Mount, held map[fsKey]time.Time) []hostfs.Mount {
	if len(held) == 0 {
		return now
	}
	isHeld := func(m hostfs.Mount) bool {
		_, ok := held[fsKey{m.Major, m.Minor}]
		return ok && onDevice(&m)
	}
	kept := slices.DeleteFunc(slices.Clone(now), isHeld)
	for _, m := range old {
		if isHeld(m) {
			kept = append(kept, m)
		}
	}
	return kept
}

// sooner returns the shorter of two waits; 0 means no wait.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

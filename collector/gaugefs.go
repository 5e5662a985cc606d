package collector

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

const (
	// statfsWithin is how long a filesystem may take to answer. It answers from memory, within
	// microseconds; only resolving the path to its mount point may need a disk.
	statfsWithin = time.Second
	// maxGauged bounds the filesystems that are read: each takes a thread if it hangs. Readings of
	// others count as lost.
	maxGauged = 256
	// maxTries is how many mounts of a filesystem are tried: the agent may not see all of them.
	maxTries = 4
)

// statfsFunc calls statfs at path, which must be on the device.
type statfsFunc func(path string, key fsKey) (unix.Statfs_t, error)

// gaugedFilesystem is a filesystem whose gauges are read.
type gaugedFilesystem struct {
	mount  hostfs.Mount
	device event.Device
	calls  bounded.Calls // at most one: a filesystem that hangs is not called again until it answers
	inodes bool          // the gauge was reported
	space  bool
	unseen bool // this was logged
}

// errUnseen is returned for a filesystem that the agent can't reach by any path.
var errUnseen = errors.New("not visible to the agent")

// lookAtFilesystems reads space and inodes of all writable filesystems on devices that the agent
// sees. A container that may not trace the node's init sees only filesystems of which a directory
// or file is mounted into the container.
func (g *gaugeSource) lookAtFilesystems(emit Emit) {
	table, err := g.env.fs.MountTable()
	if err != nil {
		g.reportSource(event.GaugeSpace, err, emit)
		g.reportSource(event.GaugeInodes, err, emit)
		return
	}
	mounts := table.Mounts()
	all, keys := byFilesystem(mounts)
	hidden := hiddenIn(mounts)
	own := sync.OnceValue(g.ownPaths)
	present := make(map[fsKey]bool, len(keys))
	seen, lost := 0, uint64(0)
	var unread error
	for _, key := range keys {
		mounted := all[key]
		paths := visiblePaths(mounted, hidden)
		if len(paths) == 0 || !fills(mounted[0]) {
			continue
		}
		if len(present) == maxGauged {
			lost++
			continue
		}
		present[key] = true
		known := g.filesystems[key]
		if known != nil && !sameFilesystem(&known.mount, mounted[0]) {
			g.reportEnd(known, emit)
			known = nil
		}
		if known == nil {
			known = &gaugedFilesystem{}
			g.filesystems[key] = known
		}
		known.mount = *mounted[0]
		err := g.ask(table, key, known, g.env.fs.Views(paths...), emit)
		if errors.Is(err, errUnseen) {
			if path := own()[key]; path != "" {
				err = g.ask(table, key, known, []string{path}, emit)
			}
		}
		switch {
		case errors.Is(err, errUnseen):
			g.unseen(known, err, emit)
			continue
		case err != nil && unread == nil:
			unread = fmt.Errorf("filesystem at %s: %w", display.Safe(paths[0], 200), err)
		}
		seen++
	}
	if seen == 0 && len(present) > 0 {
		unread = errors.New("none of the node's filesystems is visible to the agent")
	}
	for key, known := range g.filesystems {
		if !present[key] {
			g.reportEnd(known, emit)
			delete(g.filesystems, key)
		}
	}
	for _, gauge := range []string{event.GaugeSpace, event.GaugeInodes} {
		g.reportSource(gauge, unread, emit)
		if lost > 0 {
			emit(lostEvent(event.NamedStem(event.GaugeStem, gauge), "too-many", lost))
		}
	}
}

// ownPaths returns where filesystems are mounted in the agent's own mount namespace.
func (g *gaugeSource) ownPaths() map[fsKey]string {
	paths := make(map[fsKey]string)
	mounts, err := g.own()
	if err != nil {
		return paths // use what is visible without them
	}
	hidden := hiddenIn(mounts)
	for i := range mounts {
		m := &mounts[i]
		key := fsKey{m.Major, m.Minor}
		if _, ok := paths[key]; !ok && !hidden(m) {
			paths[key] = m.Path
		}
	}
	return paths
}

// unseen logs that a filesystem is not visible, and ends the gauges reported for it.
func (g *gaugeSource) unseen(f *gaugedFilesystem, why error, emit Emit) {
	if !f.unseen {
		f.unseen = true
		g.env.log.Info("gauges of a filesystem are not read", "mount", display.Safe(f.mount.Path, 200), "reason", why)
	}
	g.reportEnd(f, emit)
	f.inodes, f.space = false, false
}

// ask emits the gauges of a filesystem, which it reaches through one of the paths.
func (g *gaugeSource) ask(table *hostfs.MountTable, key fsKey, f *gaugedFilesystem, paths []string, emit Emit) error {
	statfs := g.statfs
	st, err := bounded.Do(&f.calls, statfsWithin, func() (st unix.Statfs_t, err error) {
		unseen := errUnseen
		for _, path := range paths {
			switch st, err = statfs(path, key); {
			case err == nil:
				return st, nil
			case noWay(err):
				unseen = fmt.Errorf("%w: %w", errUnseen, err)
			default:
				return st, err
			}
		}
		return st, unseen
	})
	if errors.Is(err, bounded.ErrLate) {
		return bounded.ErrLate // also while an earlier call still hangs
	}
	if err != nil {
		return err
	}
	device := g.env.mountedDevice(&f.mount)
	if at := table.At(f.mount.DeviceMajor, f.mount.DeviceMinor); len(at) > 0 {
		device.Mounts = at // from this table: the first check may run before [mountSource]'s
	}
	if device.Name != f.device.Name {
		g.reportEnd(f, emit) // it does not continue under another name
	}
	f.device = device
	if st.Files > 0 { // btrfs and FAT have no fixed number of inodes
		f.inodes = true
		g.emit(event.GaugeData{Name: event.GaugeInodes, Value: st.Files - min(st.Ffree, st.Files), Limit: st.Files}, new(f.device), emit)
	}
	if st.Blocks > 0 {
		f.space = true
		unit := uint64(st.Frsize)
		used := st.Blocks - min(st.Bfree, st.Blocks)
		// Without the blocks reserved for root, like df.
		g.emit(event.GaugeData{Name: event.GaugeSpace, Value: used * unit, Limit: (used + st.Bavail) * unit}, new(f.device), emit)
	}
	return nil
}

// noWay reports whether the error means that a path does not lead to the filesystem.
func noWay(err error) bool {
	return errors.Is(err, hostfs.ErrOtherFilesystem) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// reportEnd ends a filesystem's gauges: it is unmounted, can't fill up, or is not visible.
func (g *gaugeSource) reportEnd(f *gaugedFilesystem, emit Emit) {
	if f.inodes {
		g.emit(event.GaugeData{Name: event.GaugeInodes, Gone: true}, new(f.device), emit)
	}
	if f.space {
		g.emit(event.GaugeData{Name: event.GaugeSpace, Gone: true}, new(f.device), emit)
	}
}

// fills reports whether a filesystem on a device can fill up and answers without another node or a
// process: filesystems in user space and of clusters are excluded.
func fills(m *hostfs.Mount) bool {
	switch m.FSType {
	case "gfs2", "ocfs2":
		return false
	}
	return !m.SuperReadOnly && !strings.HasPrefix(m.FSType, "fuse")
}

// visiblePaths returns the visible paths of a filesystem's mounts, at most maxTries. Whole mounts
// come first: a bind-mounted directory may have a quota, whose figures statfs would return.
func visiblePaths(all mounted, hidden func(*hostfs.Mount) bool) []string {
	var whole, parts []string
	for _, m := range all {
		switch {
		case hidden(m):
		case m.Root == "/":
			whole = append(whole, m.Path)
		default:
			parts = append(parts, m.Path)
		}
	}
	whole = append(whole, parts...)
	return whole[:min(len(whole), maxTries)]
}

// hiddenIn returns a function that reports whether another mount covers a mount at the same path,
// so that no path leads to the covered one.
func hiddenIn(mounts []hostfs.Mount) func(*hostfs.Mount) bool {
	top := make(map[string]int, len(mounts)) // IDs by path
	for i := range mounts {
		top[mounts[i].Path] = mounts[i].ID
	}
	return func(m *hostfs.Mount) bool { return top[m.Path] != m.ID }
}

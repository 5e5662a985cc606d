package collector

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

const (
	// askWithin is how long a filesystem may take to answer. It answers from memory, within
	// microseconds; only resolving the path to it may need a disk.
	askWithin = time.Second
	// maxWaits bounds how often one look waits askWithin. What is left waits for the next look.
	maxWaits = 4
	// maxHanging bounds the filesystems that may leave a call unanswered: each occupies a thread.
	maxHanging = 64
)

// askAbout calls f, which may hang, about a filesystem. A filesystem that has not answered an earlier
// call is not called again until it does, and costs a look nothing.
func askAbout[T any](m *mountSource, key fsKey, f func() (T, error)) (T, error) {
	maps.DeleteFunc(m.hanging, func(_ fsKey, c *bounded.Calls) bool { return c.Stats().Behind == 0 })
	if m.hanging[key] != nil || len(m.hanging) >= maxHanging || m.waits >= maxWaits {
		var none T
		return none, bounded.ErrRefused
	}
	calls := &bounded.Calls{}
	answer, err := bounded.Do(calls, askWithin, f)
	if errors.Is(err, bounded.ErrLate) {
		m.hanging[key] = calls
		m.waits++
	}
	return answer, err
}

// inquiry is what a filesystem is asked: whether it refuses writes without showing it.
type inquiry struct {
	asked time.Time // last; zero: never
	err   error     // why it has no answer
}

// watchedType returns the name in /proc/filesystems of a filesystem that may refuse writes without
// showing it, and reports its errors by hooks; "" for others.
func watchedType(fsType string) string {
	switch {
	case fsType == "xfs":
		return fsType
	case hostfs.IsExt4(fsType):
		return "ext4"
	}
	return ""
}

// ask finds filesystems that refuse writes without showing it and without a report of the error:
// those of the first table, which may have refused them before, and those whose errors Notify does not
// get. The latter are asked regularly, and once more when Notify gets them. Those that don't answer are
// asked again at the next look.
func (m *mountSource) ask(first bool, now time.Time, emit Emit) {
	watched := m.watchedTypes() // before the questions: errors after them are reported
	maps.DeleteFunc(m.inquiries, func(key fsKey, _ *inquiry) bool { return m.filesystems[key] == nil || m.reported[key] != nil })
	var due []fsKey
	for _, key := range m.keys {
		of := watchedType(m.filesystems[key][0].FSType)
		if of == "" || m.reported[key] != nil {
			continue
		}
		q := m.inquiries[key]
		if q == nil && (first || !watched[of]) {
			q = &inquiry{}
			m.inquiries[key] = q
		}
		if q != nil && (errors.Is(q.err, bounded.ErrLate) || now.Sub(q.asked) > mountEvery/2) {
			due = append(due, key)
		}
	}
	if len(due) == 0 {
		return
	}
	hidden := hiddenIn(m.last)
	for _, key := range due {
		fs, q := m.filesystems[key], m.inquiries[key]
		var reason string
		q.asked = now
		reason, q.err = askAbout(m, key, func() (string, error) { return m.refusal(key, fs, visiblePaths(fs, hidden)) })
		if watched[watchedType(fs[0].FSType)] && !errors.Is(q.err, bounded.ErrLate) {
			delete(m.inquiries, key)
			if q.err != nil {
				m.env.log.Info("can't determine whether a filesystem refuses writes", "mount", display.Safe(fs[0].Path, 200), "reason", q.err)
			}
		}
		if reason != "" && !m.apply(change{key: key, mount: *fs[0], faulty: true, reason: reason}, emit) {
			m.drop()
		}
	}
}

// unseen returns why the source may miss filesystems that refuse writes, or nil.
func (m *mountSource) unseen() error {
	var first error
	path, others := "", -1
	for _, key := range m.keys {
		if q := m.inquiries[key]; q != nil && q.err != nil {
			if others++; others == 0 {
				path, first = display.Safe(m.filesystems[key][0].Path, 200), q.err
			}
		}
	}
	switch {
	case first == nil:
		return nil
	case others > 0:
		path += fmt.Sprintf(" (and %d others)", others)
	}
	return fmt.Errorf("can't determine whether the filesystem at %s refuses writes: %w", path, first)
}

// refusal returns how a filesystem refuses writes, if the table does not show it.
func (m *mountSource) refusal(key fsKey, fs mounted, paths []string) (reason string, err error) {
	if fs[0].FSType == "xfs" {
		return m.xfsRefusal(key, paths)
	}
	return m.ext4Refusal(key, fs, paths)
}

// xfsRefusal checks an XFS through the first of the paths that leads to it.
func (m *mountSource) xfsRefusal(key fsKey, paths []string) (reason string, err error) {
	down, err := m.env.fs.XFSShutDown(key.major, key.minor, paths...)
	if down {
		reason = reasonShutdown
	}
	return reason, err
}

// ext4Refusal checks an ext4 whose mounts show no fault, by its superblock and through a path to
// it.
func (m *mountSource) ext4Refusal(key fsKey, fs mounted, paths []string) (reason string, err error) {
	mount := fs.writable()
	if fs.visible() != "" || mount == nil {
		return "", nil
	}
	stopped, err := m.env.fs.Ext4Stopped(mount, m.env.devices.Device(key.major, key.minor).Name)
	if stopped {
		return reasonErrorPolicy, nil
	}
	down, downErr := m.env.fs.Ext4ShutDown(key.major, key.minor, paths...)
	if down {
		return reasonErrorPolicy, nil
	}
	return "", errors.Join(err, downErr)
}

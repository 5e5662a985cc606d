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

// ask finds filesystems that have refused writes since before the first table and don't show it:
// the kernel does not report their errors again. Those that don't answer are asked again next time.
func (m *mountSource) ask(emit Emit) {
	maps.DeleteFunc(m.unasked, func(key fsKey, _ error) bool { return m.filesystems[key] == nil || m.reported[key] != nil })
	if len(m.unasked) == 0 {
		return
	}
	hidden := hiddenIn(m.last)
	for _, key := range m.keys {
		if _, ok := m.unasked[key]; !ok {
			continue
		}
		fs := m.filesystems[key]
		reason, err := askAbout(m, key, func() (string, error) { return m.refusal(key, fs, visiblePaths(fs, hidden)) })
		if errors.Is(err, bounded.ErrLate) {
			m.unasked[key] = err
			continue
		}
		if err != nil {
			m.env.log.Info("can't determine whether a filesystem refuses writes", "mount", display.Safe(fs[0].Path, 200), "reason", err)
		}
		delete(m.unasked, key)
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
		if err := m.unasked[key]; err != nil {
			if others++; others == 0 {
				path, first = display.Safe(m.filesystems[key][0].Path, 200), err
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
	switch {
	case fs[0].FSType == "xfs":
		return m.xfsRefusal(key, paths)
	case hostfs.IsExt4(fs[0].FSType):
		return m.ext4Refusal(key, fs, paths)
	}
	return "", nil
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

package collector

import (
	"errors"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// askWithin is how long a filesystem may take to answer. It answers from memory, within
// microseconds; only resolving the path to it may need a disk.
const askWithin = time.Second

// maxUnanswered bounds the filesystems that may leave a call unanswered: each delays a check by
// askWithin, and occupies a thread.
const maxUnanswered = 4

// ask finds filesystems that have refused writes since before the first table and don't show it:
// the kernel does not report their errors again. Those that don't answer are asked again next time.
func (m *mountSource) ask(emit Emit) {
	if len(m.unasked) == 0 {
		return
	}
	filesystems, keys := byFilesystem(m.last)
	hidden := hiddenIn(m.last)
	hanging := 0
	for key, calls := range m.unasked {
		if filesystems[key] == nil || m.reported[key] != nil {
			delete(m.unasked, key)
			continue
		}
		hanging += calls.Stats().Behind
	}
	for _, key := range keys {
		calls := m.unasked[key]
		if calls == nil || calls.Stats().Behind > 0 || hanging >= maxUnanswered {
			continue
		}
		fs := filesystems[key]
		reason, err := bounded.Do(calls, askWithin, func() (string, error) {
			switch {
			case fs[0].FSType == "xfs":
				return m.xfsRefusal(key, visiblePaths(fs, hidden))
			case hostfs.IsExt4(fs[0].FSType):
				return m.ext4Refusal(key, fs, visiblePaths(fs, hidden))
			}
			return "", nil
		})
		if err != nil {
			m.env.log.Info("can't determine whether a filesystem refuses writes", "mount", display.Safe(fs[0].Path, 200), "reason", err)
		}
		if errors.Is(err, bounded.ErrLate) {
			hanging++
			continue
		}
		delete(m.unasked, key)
		if reason != "" && !m.apply(change{key: key, mount: *fs[0], faulty: true, reason: reason}, emit) {
			m.drop()
		}
	}
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

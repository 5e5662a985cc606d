package collector

import (
	"errors"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
)

// askWithin is how long a filesystem may take to answer. It answers from memory, within
// microseconds; only the way to it may need a disk.
const askWithin = time.Second

// atStart finds filesystems that have refused writes since before the first look and don't
// show it: the kernel does not report their errors again.
func (m *mountSource) atStart(emit Emit) {
	filesystems, keys := byFilesystem(m.last)
	hidden := hiddenIn(m.last)
	calls := bounded.Calls{Max: 4} // each that hangs holds up the look for askWithin
	for _, key := range keys {
		fs := filesystems[key]
		if m.reported[key] != nil {
			continue
		}
		reason, err := bounded.Do(&calls, askWithin, func() (string, error) {
			switch fs.first().FSType {
			case "xfs":
				return m.xfsRefusal(key, visiblePaths(fs, hidden))
			case "ext4":
				return m.ext4Refusal(key, fs)
			}
			return "", nil
		})
		switch {
		case err != nil:
			m.env.log.Info("whether a filesystem refuses writes is not known", "mount", display.Safe(fs.first().Path, 200), "reason", err)
		case reason != "":
			m.apply(change{key: key, mount: *fs.first(), faulty: true, reason: reason}, emit)
		}
	}
}

// xfsRefusal asks an XFS at the first of the paths that leads to it.
func (m *mountSource) xfsRefusal(key fsKey, paths []string) (reason string, err error) {
	var errs []error
	for _, path := range paths {
		down, err := m.env.fs.XFSShutDown(key.major, key.minor, path)
		switch {
		case down:
			return reasonShutdown, nil
		case err == nil:
			return "", nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func (m *mountSource) ext4Refusal(key fsKey, fs *mounted) (reason string, err error) {
	stopped, err := m.env.fs.Ext4Stopped(fs.first(), m.env.devices.Device(key.major, key.minor).Name)
	if stopped {
		reason = reasonErrorPolicy
	}
	return reason, err
}

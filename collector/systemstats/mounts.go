package systemstats

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// mount is a mount of a file system that is on a device.
type mount struct {
	hostfs.Mount
	device string // kernel name, else the source without "/dev/"
}

// mounts returns the mounts of file systems that are on devices, in their order.
func (c *Collector) mounts() ([]mount, error) {
	onDevice, err := c.deviceTypes()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(c.set.proc("1/mountinfo"))
	if err != nil {
		// Reading another process's mounts requires the right to trace it.
		if text, err = os.ReadFile(c.set.proc("self/mountinfo")); err != nil {
			return nil, err
		}
	}
	table, err := hostfs.ParseMounts(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	var all []mount
	for _, m := range table {
		if !onDevice[m.FSType] {
			continue
		}
		if m.Root != "/" {
			m.Options += ",bind"
		}
		device := c.kernelName(m.Major, m.Minor)
		if device == "" {
			device = strings.TrimPrefix(m.Source, "/dev/")
		}
		all = append(all, mount{m, device})
	}
	return all, nil
}

// deviceTypes returns the types of file systems on devices, including zfs, on its pools' devices.
func (c *Collector) deviceTypes() (map[string]bool, error) {
	text, err := os.ReadFile(c.set.proc("filesystems"))
	if err != nil {
		return nil, err
	}
	types := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		flag, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if flag != "nodev" || name == "zfs" {
			types[name] = true
		}
	}
	return types, nil
}

// maxTries is how many mounts are tried for a device: some are hidden by others, or not visible.
const maxTries = 8

// usage reads the usage of the file system on each device, through its first visible mount.
func (c *Collector) usage(s *sample, mounts []mount) error {
	var devices []string
	of := map[string][]mount{}
	for _, m := range mounts {
		if len(of[m.device]) == 0 {
			devices = append(devices, m.device)
		}
		if len(of[m.device]) < maxTries {
			of[m.device] = append(of[m.device], m)
		}
	}
	var errs []error
	for _, device := range devices[:c.bounded("mounts", len(devices))] {
		m, st, err := c.askFirst(of[device])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		labels := func(state string) []string {
			return []string{display.Safe(m.device, maxLabel), display.Safe(m.FSType, maxLabel), display.Safe(m.Options, maxLabel), state}
		}
		unit := uint64(st.Bsize)
		free, used := st.Bavail*unit, (st.Blocks-st.Bfree)*unit
		s.count("disk/bytes_used", free, labels("free")...)
		s.count("disk/bytes_used", used, labels("used")...)
		percent := 0.0
		if total := free + used; total > 0 { // without the space reserved for root, as df
			percent = float64(used) / float64(total) * 100
		}
		s.add("disk/percent_used", 100-percent, labels("free")...)
		s.add("disk/percent_used", percent, labels("used")...)
	}
	return errors.Join(errs...)
}

// askFirst tries the mounts of one device until one answers.
func (c *Collector) askFirst(mounts []mount) (mount, unix.Statfs_t, error) {
	var first error
	root := c.root()
	for _, m := range mounts {
		path := filepath.Join(root, m.Path)
		// If the mount is not visible from here, the values would be of another file system.
		st, err := c.inTime(path, func() (unix.Statfs_t, error) { return hostfs.StatfsAt(path, m.Major, m.Minor) })
		if err == nil {
			return m, st, nil
		}
		if first == nil {
			first = fmt.Errorf("file system at %s: %w", display.Safe(m.Path, maxLabel), err)
		}
		if errors.Is(err, bounded.ErrLate) {
			break // the other mounts would hang as well
		}
	}
	return mount{}, unix.Statfs_t{}, first
}

// probeFor is how long a file system may take to answer.
const probeFor = 2 * time.Second

// inTime calls ask for the file system at path, unless an earlier call has not returned yet.
func (c *Collector) inTime(path string, ask func() (unix.Statfs_t, error)) (unix.Statfs_t, error) {
	calls := c.late[path]
	if calls == nil {
		calls = new(bounded.Calls)
	}
	st, err := bounded.Do(calls, probeFor, ask)
	if errors.Is(err, bounded.ErrLate) {
		c.late[path] = calls
	} else {
		delete(c.late, path)
	}
	return st, err
}

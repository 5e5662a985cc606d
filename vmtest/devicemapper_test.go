package vmtest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// mapped are device-mapper devices over other devices. One command handles all of them, because
// starting a program is slow in an emulated machine.
type mapped struct {
	names   []string // names in the device mapper
	devices []blockDevice
	t       *testing.T
}

// mapTables creates a device per table ("0 2048 error", lines joined by commas), and removes them
// at the end of the test.
func mapTables(t *testing.T, name string, tables ...string) *mapped {
	t.Helper()
	module(t, "CONFIG_BLK_DEV_DM", "dm_mod")
	m := &mapped{t: t}
	var concise []string
	for i, table := range tables {
		n := fmt.Sprintf("kn-%s-%d", name, i)
		m.names = append(m.names, n)
		concise = append(concise, n+",,,rw,"+table)
	}
	m.command("create", "--concise", strings.Join(concise, ";"))
	t.Cleanup(func() {
		// A process that has just used the device may not have closed it yet.
		command(t, "dmsetup", append([]string{"remove", "--noudevsync", "--retry"}, m.names...)...)
	})
	for _, n := range m.names {
		m.devices = append(m.devices, findDevice(t, "device of "+n, func(dir string) bool {
			return attribute(filepath.Join(dir, "dm/name")) == n
		}))
	}
	return m
}

// mapLinear creates n devices of a size, at consecutive offsets of a lower one.
func mapLinear(t *testing.T, name string, lower blockDevice, n int, size int64) *mapped {
	t.Helper()
	var tables []string
	for i := range int64(n) {
		tables = append(tables, linear(lower, i*size, size))
	}
	return mapTables(t, name, tables...)
}

func linear(lower blockDevice, offset, size int64) string {
	return fmt.Sprintf("0 %d linear %s %d", size/sectorSize, lower.path(), offset/sectorSize)
}

func (m *mapped) command(args ...string) {
	m.t.Helper()
	command(m.t, "dmsetup", append(args, "--noudevsync")...)
}

// fail makes all I/O of the devices fail from now on. I/O in flight completes first; a filesystem
// is not asked to flush.
func (m *mapped) fail() {
	m.t.Helper()
	m.command(append([]string{"wipe_table", "--noflush", "--nolockfs"}, m.names...)...)
}

// suspend makes new I/O of the devices wait until resume.
func (m *mapped) suspend() {
	m.t.Helper()
	m.command(append([]string{"suspend", "--noflush", "--nolockfs"}, m.names...)...)
}

func (m *mapped) resume() {
	m.t.Helper()
	m.command(append([]string{"resume"}, m.names...)...)
}

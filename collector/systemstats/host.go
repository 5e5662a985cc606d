package systemstats

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// host reads the uptime, and the versions of kernel and operating system.
func (c *Collector) host(s *sample) error {
	text, err := os.ReadFile(c.set.proc("uptime"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return fmt.Errorf("uptime: %w", err)
	}
	kernel, err := os.ReadFile(c.set.proc("sys/kernel/osrelease"))
	if err != nil {
		return err
	}
	system, err := osVersion(c.root())
	s.add("host/uptime", float64(int64(seconds)), display.Safe(strings.TrimSpace(string(kernel)), maxLabel), system)
	return err // the uptime is reported without the name, too
}

// root returns where the node's file systems are mounted.
func (c *Collector) root() string {
	if c.set.Root != "" {
		return c.set.Root
	}
	// Check a path below the link: everybody may stat the link itself.
	if root := c.set.proc("1/root"); exists(filepath.Join(root, "etc")) {
		return root
	}
	return "/"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// osVersion returns the name of the system as node-problem-detector does: "debian 12 (bookworm)",
// "cos 105-17412.1.1". It is empty if unknown.
func osVersion(root string) (string, error) {
	const most = 64 << 10
	var errs []error
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		text, err := hostfs.New(root).ReadFile(path, most)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f := parseOSRelease(string(text))
		version := cmp.Or(f["VERSION"], f["VERSION_ID"])
		if f["ID"] == "cos" {
			version += "-" + f["BUILD_ID"]
		}
		return display.Safe(strings.TrimSpace(f["ID"]+" "+version), maxLabel), nil
	}
	return "", errors.Join(errs...)
}

// parseOSRelease parses os-release(5): shell assignments with optionally quoted values.
func parseOSRelease(text string) map[string]string {
	fields := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			quote := value[0]
			if value = value[1 : n-1]; quote == '"' {
				value = strings.NewReplacer(`\"`, `"`, `\$`, `$`, `\\`, `\`, "\\`", "`").Replace(value)
			}
		}
		fields[name] = value
	}
	return fields
}

// memory reads /proc/meminfo.
func (c *Collector) memory(s *sample) error {
	m, err := c.fs.Meminfo()
	if err != nil {
		return err
	}
	add := func(id string, kib *uint64, labels ...string) {
		if kib != nil {
			s.count(id, *kib*1024, labels...)
		}
	}
	add("memory/bytes_used", m.MemFree, "free")
	add("memory/bytes_used", m.Buffers, "buffered")
	add("memory/bytes_used", m.Cached, "cached")
	add("memory/bytes_used", m.Slab, "slab")
	add("memory/dirty_used", m.Dirty, "dirty")
	add("memory/dirty_used", m.Writeback, "writeback")
	add("memory/anonymous_used", m.ActiveAnon, "active")
	add("memory/anonymous_used", m.InactiveAnon, "inactive")
	add("memory/page_cache_used", m.ActiveFile, "active")
	add("memory/page_cache_used", m.InactiveFile, "inactive")
	add("memory/unevictable_used", m.Unevictable)
	if m.MemTotal == nil || m.MemFree == nil || m.Buffers == nil || m.Cached == nil || m.Slab == nil || *m.MemTotal == 0 {
		return errors.New("meminfo: MemTotal, MemFree, Buffers, Cached or Slab is missing")
	}
	// The fields were not read at the same moment: the difference may be negative.
	rest := *m.MemFree + *m.Buffers + *m.Cached + *m.Slab
	used := *m.MemTotal - min(*m.MemTotal, rest)
	add("memory/bytes_used", &used, "used")
	s.add("memory/percent_used", float64(used)/float64(*m.MemTotal)*100, "used")
	return nil
}

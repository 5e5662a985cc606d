package inject

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// memoryHierarchy is where this machine's memory controller can be used.
type memoryHierarchy struct {
	root string // its mount point
	v2   bool
}

// findMemoryHierarchy finds the mounted memory controller, v1 or v2: a
// controller is in one of the two, and only there are its files.
func findMemoryHierarchy() (memoryHierarchy, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return memoryHierarchy{}, fmt.Errorf("find memory controller: %w", err)
	}
	var disabled string
	for _, m := range mounts {
		if m.FSType == "cgroup" && slices.Contains(strings.Split(m.VFSOptions, ","), "memory") {
			return memoryHierarchy{root: m.Mountpoint}, nil
		}
		if m.FSType != "cgroup2" || !hasWord(filepath.Join(m.Mountpoint, "cgroup.controllers"), "memory") {
			continue
		}
		if hasWord(filepath.Join(m.Mountpoint, "cgroup.subtree_control"), "memory") {
			return memoryHierarchy{root: m.Mountpoint, v2: true}, nil
		}
		disabled = m.Mountpoint
	}
	if disabled != "" {
		return memoryHierarchy{}, &Refused{Reason: "the memory controller is not enabled for children of " + disabled +
			" (echo +memory > " + filepath.Join(disabled, "cgroup.subtree_control") + ")"}
	}
	return memoryHierarchy{}, &Refused{Reason: "no memory cgroup hierarchy is mounted"}
}

func hasWord(path, word string) bool {
	b, err := os.ReadFile(path)
	return err == nil && slices.Contains(strings.Fields(string(b)), word)
}

// memoryCgroup is a cgroup with a memory limit.
type memoryCgroup struct {
	path string
	v2   bool
}

// create makes the cgroup, limits memory and swap together to limit bytes, and
// notes it in the record.
func (h memoryHierarchy) create(r *record, name string, limit uint64) (memoryCgroup, error) {
	c := memoryCgroup{path: filepath.Join(h.root, name), v2: h.v2}
	if err := r.will(step{Kind: stepCgroup, Path: c.path}); err != nil {
		return c, err
	}
	if err := os.Mkdir(c.path, 0o755); err != nil {
		return c, fmt.Errorf("create cgroup: %w", err)
	}
	files := []struct{ name, value string }{
		{"memory.limit_in_bytes", strconv.FormatUint(limit, 10)},
		{"memory.memsw.limit_in_bytes", strconv.FormatUint(limit, 10)}, // after the limit: may not be below it
		{"memory.swappiness", "0"},
	}
	if h.v2 {
		files = []struct{ name, value string }{
			{"memory.max", strconv.FormatUint(limit, 10)},
			{"memory.swap.max", "0"},
		}
	}
	for i, f := range files {
		err := os.WriteFile(filepath.Join(c.path, f.name), []byte(f.value), 0)
		// Kernels without swap accounting lack the swap files: nothing to limit.
		if err != nil && (i == 0 || !errors.Is(err, os.ErrNotExist)) {
			return c, fmt.Errorf("limit cgroup: %w", err)
		}
	}
	return c, nil
}

// kills returns the kernel's own count of OOM kills in the cgroup.
func (c memoryCgroup) kills() (uint64, error) {
	name := "memory.oom_control" // has oom_kill from 4.13
	if c.v2 {
		name = "memory.events"
	}
	path := filepath.Join(c.path, name)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("count kills: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			return strconv.ParseUint(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("count kills: no oom_kill in %s", path)
}

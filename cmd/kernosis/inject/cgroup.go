package inject

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// memoryHierarchy returns the cgroup hierarchy with this machine's memory controller, v1 or v2: a
// controller, and so its files, is only in one of them.
func memoryHierarchy() (hostfs.CgroupLayout, error) {
	mounts, err := hostfs.OwnMounts()
	if err != nil {
		return hostfs.CgroupLayout{}, fmt.Errorf("find memory controller: %w", err)
	}
	var disabled string
	for _, m := range mounts {
		if m.FSType == "cgroup" && slices.Contains(strings.Split(m.SuperOptions, ","), "memory") {
			return hostfs.CgroupLayout{Controllers: map[string]string{"memory": m.Path}}, nil
		}
		if m.FSType != "cgroup2" || !hasWord(filepath.Join(m.Path, "cgroup.controllers"), "memory") {
			continue
		}
		if hasWord(filepath.Join(m.Path, "cgroup.subtree_control"), "memory") {
			return hostfs.CgroupLayout{Unified: m.Path}, nil
		}
		disabled = m.Path
	}
	if disabled != "" {
		return hostfs.CgroupLayout{}, &Refused{Reason: "the memory controller is not enabled for children of " + disabled +
			" (echo +memory > " + filepath.Join(disabled, "cgroup.subtree_control") + ")"}
	}
	return hostfs.CgroupLayout{}, &Refused{Reason: "no memory cgroup hierarchy is mounted"}
}

func hasWord(path, word string) bool {
	b, err := os.ReadFile(path)
	return err == nil && slices.Contains(strings.Fields(string(b)), word)
}

// memoryCgroup is a cgroup with a memory limit.
type memoryCgroup struct {
	hierarchy hostfs.CgroupLayout
	name      string // below the hierarchy's root
	dir       string
}

// createCgroup creates a cgroup, limits memory and swap together to limit bytes, and
// adds it to the record.
func createCgroup(r *record, hierarchy hostfs.CgroupLayout, name string, limit uint64) (memoryCgroup, error) {
	root, v1 := hierarchy.Controllers["memory"]
	files := []struct{ name, value string }{
		{"memory.limit_in_bytes", strconv.FormatUint(limit, 10)},
		{"memory.memsw.limit_in_bytes", strconv.FormatUint(limit, 10)}, // after the limit: may not be below it
		{"memory.swappiness", "0"},
	}
	if !v1 {
		root = hierarchy.Unified
		files = []struct{ name, value string }{
			{"memory.max", strconv.FormatUint(limit, 10)},
			{"memory.swap.max", "0"},
		}
	}
	c := memoryCgroup{hierarchy: hierarchy, name: name, dir: filepath.Join(root, name)}
	if err := r.will(step{Kind: stepCgroup, Path: c.dir}); err != nil {
		return c, err
	}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return c, fmt.Errorf("create cgroup: %w", err)
	}
	for i, f := range files {
		err := os.WriteFile(filepath.Join(c.dir, f.name), []byte(f.value), 0)
		// Kernels without swap accounting lack the swap files: nothing to limit.
		if err != nil && (i == 0 || !errors.Is(err, os.ErrNotExist)) {
			return c, fmt.Errorf("limit cgroup: %w", err)
		}
	}
	return c, nil
}

// kills returns the kernel's own count of OOM kills in the cgroup.
func (c memoryCgroup) kills() (uint64, error) {
	use, err := hostfs.New("/").CgroupMemoryUse(c.hierarchy, "/"+c.name)
	if err != nil {
		return 0, fmt.Errorf("count kills: %w", err)
	}
	return use.OOMKills, nil
}

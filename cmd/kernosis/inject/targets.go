package inject

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
)

// DefaultTargetsDir is the folder in which a running Kernosis looks for probe targets.
const DefaultTargetsDir = "/run/kernosis/targets.d"

// ProbeTarget is the target of a probe, with what the detector needs to know of it.
type ProbeTarget struct {
	Addr        netip.AddrPort
	Netns       uint32 // inode of the prober's network namespace
	TargetNetns uint32 // inode of the target's
	ProberPID   int    // a process in the prober's namespace: the one that connects
	TargetPID   int    // a process in the target's namespace: the one that listens
}

// writeTarget writes the target's file into dir atomically, so that no reader sees half of
// it, and adds it to the record.
func writeTarget(r *record, dir, name string, t ProbeTarget) error {
	if dir == "" {
		dir = DefaultTargetsDir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("register target: %w", err)
	}
	path, err := filepath.Abs(filepath.Join(dir, "inject-"+strconv.Itoa(os.Getpid())+".yaml"))
	if err != nil {
		return fmt.Errorf("register target: %w", err)
	}
	text := fmt.Sprintf("targets:\n- name: %s\n  address: %q\n  port: %d\n  netns: %d\n  targetNetns: %d\n  slowAfter: %s\n  slowOpeners: %s\n",
		"inject "+name, t.Addr.Addr().String(), t.Addr.Port(), t.Netns, t.TargetNetns, slowAfter, proberName)
	draft := path + ".tmp"
	for _, p := range []string{path, draft} {
		if err := r.will(step{Kind: stepFile, Path: p}); err != nil {
			return err
		}
	}
	if err := os.WriteFile(draft, []byte(text), 0o644); err != nil {
		return fmt.Errorf("register target: %w", err)
	}
	if err := os.Rename(draft, path); err != nil {
		return fmt.Errorf("register target: %w", err)
	}
	return nil
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// As root and with the capabilities of the host, like an agent's pod, the program in the image can
// load its BPF programs; nothing in the image prevents that.
func TestTheAgentsProgramsLoadInTheImage(t *testing.T) {
	needRoot(t)
	runc := find(t, "runc")
	dir := t.TempDir()
	// A copy, because runc creates mount points.
	if err := os.CopyFS(filepath.Join(dir, "root"), os.DirFS(filepath.Join(imageRoot(t), "root"))); err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("kernosis-image-%d", os.Getpid())
	writeSpec(t, dir, id, "/usr/bin/kernosis", "features", "-o", "json")
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, runc, "--root", filepath.Join(dir, "runc"), "run", "--bundle", dir, id)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	var features struct {
		Programs []struct{ Stem, Hook, Program, State, Reason string }
	}
	if err := json.Unmarshal(out.Bytes(), &features); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	loaded := map[string]bool{}
	for _, r := range features.Programs {
		loaded[r.Stem] = loaded[r.Stem] || r.State == "attached" || r.State == "on-demand"
		if r.State == "failed" {
			t.Errorf("%+v", r)
		}
	}
	if len(loaded) != len(bpf.Stems()) {
		t.Errorf("stems: %v", loaded)
	}
	for stem, ok := range loaded {
		if !ok {
			t.Errorf("no program of %s is attached: %s", stem, out.String())
		}
	}
}

// writeSpec writes the configuration for runc: a program with the machine's processes and network,
// like an agent's pod, and a read-only root.
func writeSpec(t *testing.T, bundle, group string, args ...string) {
	t.Helper()
	all := []string{
		"CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SYS_PTRACE", "CAP_SYSLOG", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH",
	}
	spec := map[string]any{
		"ociVersion": "1.0.2",
		"root":       map[string]any{"path": "root", "readonly": true},
		"process": map[string]any{
			"args": args, "cwd": "/", "user": map[string]any{"uid": 0, "gid": 0}, "noNewPrivileges": true,
			"capabilities": map[string]any{"bounding": all, "effective": all, "permitted": all},
		},
		"mounts": []map[string]any{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/sys", "type": "bind", "source": "/sys", "options": []string{"rbind", "ro"}},
		},
		"linux": map[string]any{"cgroupsPath": "/" + group, "namespaces": []map[string]any{{"type": "mount"}}},
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

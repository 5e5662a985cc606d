package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// peerProgram is the node-problem-detector that "make bench" builds, and peerModule the folder of its
// module file.
const (
	peerProgram = "../../bin/node-problem-detector"
	peerModule  = "../../.tools/node-problem-detector"
)

// BenchmarkPeers measures this agent and node-problem-detector, one after the other, as their
// users run them without a cluster: the kernel's log and OOM kills, output as text to a file,
// the console unchanged. Memory is measured three minutes after the start, idle CPU time over
// the last of these minutes.
func BenchmarkPeers(b *testing.B) {
	needKernel(b)
	testenv.HoldKernel(b)
	if _, err := os.Stat(peerProgram); err != nil {
		b.Skip("no node-problem-detector (make bench builds it): ", err)
	}
	list := exec.CommandContext(b.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/node-problem-detector")
	list.Dir = peerModule
	source, err := list.Output()
	if err != nil {
		b.Fatal("where is the source of node-problem-detector: ", err)
	}
	const pins = "/sys/fs/bpf/kernosis-bench"
	b.Cleanup(func() { os.RemoveAll(pins) })
	kernosis := agenttest.Program(b)
	own := func(more ...string) []string {
		return append([]string{kernosis, "run", "--state-dir", b.TempDir(), "--pin-root", pins, "--targets-dir", b.TempDir(), "--listen", "127.0.0.1:0"}, more...)
	}
	for _, peer := range []struct {
		name, says string // text in each kill's line
		command    []string
	}{
		{"kernosis", "oom-kill", own()},
		{"kernosis-without-diagnoses", "oom-kill", own("--diagnose=false")},
		{"node-problem-detector", "OOMKilling", []string{
			peerProgram, "--enable-k8s-exporter=false", "--port=0", "--prometheus-address=127.0.0.1", "--prometheus-port=" + strconv.Itoa(kubetest.FreePort(b)), "--logtostderr",
			"--config.system-log-monitor=" + filepath.Join(strings.TrimSpace(string(source)), "config/kernel-monitor.json"),
		}},
	} {
		b.Run("program="+peer.name, func(b *testing.B) { benchmarkPeer(b, peer.says, peer.command) })
	}
}

func benchmarkPeer(b *testing.B, says string, command []string) {
	b.Helper()
	const settle, idle, storm = 2 * time.Minute, time.Minute, 1000
	output := filepath.Join(b.TempDir(), "output")
	for b.Loop() {
		out, err := os.Create(output)
		if err != nil {
			b.Fatal(err)
		}
		cmd := exec.CommandContext(b.Context(), command[0], command[1:]...)
		cmd.Stdout, cmd.Stderr = out, out
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		if err := process.StartTied(cmd); err != nil {
			b.Fatal(err)
		}
		pid := cmd.Process.Pid
		time.Sleep(settle)
		before := agenttest.CPUTime(b, pid)
		time.Sleep(idle)
		b.ReportMetric((agenttest.CPUTime(b, pid)-before).Seconds()*1e3, "idle-cpu-ms/min")
		memory := agenttest.MemoryOf(b, pid)
		b.ReportMetric(memory.RSS/(1<<20), "rss-MiB")
		b.ReportMetric(memory.Anonymous/(1<<20), "anon-MiB")

		oom := &inject.OOM{StateDir: b.TempDir(), Limit: inject.MaxDuration}
		if err := oom.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		before, began := agenttest.CPUTime(b, pid), time.Now()
		killMany(b, oom.Cgroup(), storm)
		b.ReportMetric(storm/time.Since(began).Seconds(), "storm-kills/s")
		killed, err := oom.Kills()
		if err != nil {
			b.Fatal(err)
		}
		// It has handled the storm when it uses hardly any CPU.
		after, busy := agenttest.CPUTime(b, pid), true
		for busy {
			last := after
			time.Sleep(3 * time.Second)
			after = agenttest.CPUTime(b, pid)
			busy = after-last >= 30*time.Millisecond
		}
		b.ReportMetric((after-before).Seconds()*1e3/float64(killed), "storm-cpu-ms/kill")
		if err := oom.Close(); err != nil {
			b.Error(err)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			b.Error(err)
		}
		_ = cmd.Wait() // node-problem-detector ends with an error
		if err := out.Close(); err != nil {
			b.Error(err)
		}
		text, err := os.ReadFile(output)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(bytes.Count(text, []byte(says)))/float64(killed), "lines/kill")
	}
	b.ReportMetric(0, "ns/op")
}

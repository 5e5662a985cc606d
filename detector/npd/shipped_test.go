package npd_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
)

// shipped returns the expected content of node-problem-detector's own files: rules as
// "condition/healthy reason → reason", T for a temporary one.
func shipped() []shippedFile {
	kernel := "kmsg /dev/kmsg"
	journal := func(id string) string { return "journald /var/log/journal " + id }
	lookback := 5 * time.Minute
	return []shippedFile{
		{name: "kernel-monitor.json", kind: npd.SystemLog, log: kernel, lookback: lookback, source: "kernel-monitor", rules: []string{
			"T OOMKilling", "T TaskHung", "T UnregisterNetDevice", "T KernelOops", "T KernelOops", "T Ext4Error", "T Ext4Warning", "T IOError",
			"T MemoryReadError", "T CperHardwareErrorCorrected", "T CperHardwareErrorRecoverable", "XfsShutdown/XfsHasNotShutDown XfsHasShutdown",
			"CperHardwareErrorFatal/CperHardwareHasNoFatalError CperHardwareErrorFatal", "KernelDeadlock/KernelHasNoDeadlock DockerHung",
		}},
		{name: "kernel-monitor-filelog.json", kind: npd.SystemLog, log: "filelog /var/log/kern.log", lookback: lookback, source: "kernel-monitor", rules: []string{
			"T OOMKilling", "T TaskHung", "T UnregisterNetDevice", "T KernelOops", "T KernelOops", "KernelDeadlock/KernelHasNoDeadlock DockerHung",
		}},
		{name: "readonly-monitor.json", kind: npd.SystemLog, log: kernel, lookback: lookback, source: "readonly-monitor", rules: []string{"ReadonlyFilesystem/FilesystemIsNotReadOnly FilesystemIsReadOnly"}},
		{name: "kernel-monitor-counter.json", kind: npd.CustomPlugin, interval: 5 * time.Minute, timeout: time.Minute, source: "kernel-monitor", rules: []string{"FrequentUnregisterNetDevice/NoFrequentUnregisterNetDevice UnregisterNetDevice"}},
		{name: "systemd-monitor.json", kind: npd.SystemLog, log: journal("systemd"), lookback: lookback, source: "systemd-monitor", rules: []string{"T KubeletStart", "T DockerStart", "T ContainerdStart"}},
		{name: "systemd-monitor-counter.json", kind: npd.CustomPlugin, interval: 5 * time.Minute, timeout: time.Minute, source: "systemd-monitor", rules: []string{
			"FrequentKubeletRestart/NoFrequentKubeletRestart FrequentKubeletRestart", "FrequentDockerRestart/NoFrequentDockerRestart FrequentDockerRestart",
			"FrequentContainerdRestart/NoFrequentContainerdRestart FrequentContainerdRestart",
		}},
		{name: "docker-monitor.json", kind: npd.SystemLog, log: journal("dockerd"), lookback: lookback, source: "docker-monitor", rules: []string{
			"T CorruptDockerImage", "CorruptDockerOverlay2/NoCorruptDockerOverlay2 CorruptDockerOverlay2", "T DockerContainerStartupFailure",
		}},
		{name: "docker-monitor-filelog.json", kind: npd.SystemLog, log: "filelog /var/log/docker.log", lookback: lookback, source: "docker-monitor", rules: []string{"T CorruptDockerImage"}},
		{name: "docker-monitor-counter.json", kind: npd.CustomPlugin, interval: 5 * time.Minute, timeout: time.Minute, source: "docker-monitor", rules: []string{"CorruptDockerOverlay2/NoCorruptDockerOverlay2 CorruptDockerOverlay2"}},
		{name: "abrt-adaptor.json", kind: npd.SystemLog, log: journal("abrt-notification"), lookback: lookback, source: "abrt-adaptor", rules: []string{"T CCPPCrash", "T UncaughtException", "T XorgCrash", "T VMcore", "T KernelOops"}},
		{name: "disk-log-message-filelog.json", kind: npd.SystemLog, log: "filelog /var/log/messages", lookback: 10 * time.Hour, source: "disk-monitor", rules: []string{"DiskBadBlock/DiskBadBlock DiskBadBlock"},
			warnings: []string{
				`disk-log-message-filelog.json:21:6: trailing comma: node-problem-detector rejects this file`,
				`disk-log-message-filelog.json:29:6: trailing comma: node-problem-detector rejects this file`,
			}},
		{name: "health-checker-kubelet.json", kind: npd.CustomPlugin, interval: 10 * time.Second, timeout: 3 * time.Minute, source: "health-checker", rules: []string{"KubeletUnhealthy/KubeletIsHealthy KubeletUnhealthy"}},
		{name: "health-checker-docker.json", kind: npd.CustomPlugin, interval: 10 * time.Second, timeout: 3 * time.Minute, source: "health-checker", rules: []string{"ContainerRuntimeUnhealthy/ContainerRuntimeIsHealthy DockerUnhealthy"}},
		{name: "health-checker-containerd.json", kind: npd.CustomPlugin, interval: 10 * time.Second, timeout: 3 * time.Minute, source: "health-checker", rules: []string{"ContainerRuntimeUnhealthy/ContainerRuntimeIsHealthy ContainerdUnhealthy"}},
		{name: "custom-plugin-monitor.json", kind: npd.CustomPlugin, interval: 30 * time.Second, timeout: 5 * time.Second, source: "ntp-custom-plugin-monitor", rules: []string{"T NTPIsDown", "NTPProblem/NTPIsUp NTPIsDown"}},
		{name: "network-problem-monitor.json", kind: npd.CustomPlugin, interval: 30 * time.Second, timeout: 5 * time.Second, source: "network-custom-plugin-monitor", rules: []string{"T ConntrackFull", "T DNSUnreachable"}},
		{name: "iptables-mode-monitor.json", kind: npd.CustomPlugin, interval: 24 * time.Hour, timeout: 5 * time.Second, source: "iptables-mode-monitor", rules: []string{"T IPTablesVersionsMismatch"}},
		{name: "windows-health-checker-kubelet.json", kind: npd.CustomPlugin, skipped: true, interval: 10 * time.Second, timeout: 3 * time.Minute, source: "health-checker", rules: []string{"KubeletUnhealthy/KubeletIsHealthy KubeletUnhealthy"}},
		{name: "windows-health-checker-docker.json", kind: npd.CustomPlugin, skipped: true, interval: 10 * time.Second, timeout: 3 * time.Minute, source: "health-checker", rules: []string{"ContainerRuntimeUnhealthy/ContainerRuntimeIsHealthy DockerUnhealthy"}},
		{name: "windows-health-checker-containerd.json", kind: npd.CustomPlugin, skipped: true, interval: 10 * time.Second, timeout: 3 * time.Minute, source: "health-checker", rules: []string{"ContainerRuntimeUnhealthy/ContainerRuntimeIsHealthy ContainerdUnhealthy"}},
		{name: "windows-health-checker-kubeproxy.json", kind: npd.CustomPlugin, skipped: true, interval: 10 * time.Second, timeout: 3 * time.Minute, source: "health-checker", rules: []string{"KubeProxyUnhealthy/KubeProxyIsHealthy KubeProxyUnhealthy"}},
		{name: "windows-containerd-monitor-filelog.json", kind: npd.SystemLog, skipped: true, log: `filelog C:\Program Files\containerd\containerd.log`, lookback: lookback, source: "containerd", rules: []string{"T ContainerCreationFailed", "T CorruptContainerImageLayer", "T HCSEmptyLayerchain"}},
		{name: "windows-defender-monitor.json", kind: npd.CustomPlugin, skipped: true, interval: 10 * time.Minute, timeout: 5 * time.Second, source: "windows-defender-custom-plugin-monitor", rules: []string{"T WindowsDefenderThreatsDetected"}},
		{name: "windows-system-stats-monitor.json", kind: npd.SystemStats, skipped: true, interval: time.Minute, metrics: 26},
		{name: "system-stats-monitor.json", kind: npd.SystemStats, interval: time.Minute, metrics: 27},
		{name: "net-cgroup-system-stats-monitor.json", kind: npd.SystemStats, interval: 2 * time.Minute, metrics: 16},
		{name: "exporter/stackdriver-exporter.json", kind: npd.Exporter, skipped: true},
		{name: "guestosconfig/known-modules.json", kind: npd.KnownModules, skipped: true},
	}
}

type shippedFile struct {
	name              string
	kind              npd.Kind
	skipped           bool
	log               string // plugin, path and identifier
	source            string
	rules             []string
	lookback          time.Duration
	interval, timeout time.Duration
	metrics           int
	warnings          []string
}

func TestShippedFilesLoad(t *testing.T) {
	for _, want := range shipped() {
		t.Run(want.name, func(t *testing.T) {
			f, err := npd.LoadFile(filepath.Join("testdata/config", want.name), npd.Options{AnyProgram: true})
			noError(t, err)
			equal(t, want.kind, f.Kind)
			equal(t, want.skipped, f.Skipped != "", f.Skipped)
			var warnings []string
			for _, w := range f.Warnings {
				warnings = append(warnings, strings.TrimPrefix(w.Error(), "testdata/config/"))
			}
			equal(t, want.warnings, warnings)
			switch f.Kind {
			case npd.SystemLog:
				checkLogMonitor(t, want, f.Log)
			case npd.CustomPlugin:
				checkCheckMonitor(t, want, f.Checks)
			case npd.SystemStats:
				n := 0
				for _, m := range f.Stats.Metrics {
					n += len(m)
				}
				equal(t, want.metrics, n)
				equal(t, want.interval, f.Stats.InvokeInterval)
				equal(t, "/proc", f.Stats.ProcPath)
				equal(t, "guestosconfig/known-modules.json", f.Stats.KnownModulesConfigPath)
			case npd.Exporter, npd.KnownModules:
			}
		})
	}
}

func checkLogMonitor(t *testing.T, want shippedFile, m *npd.LogMonitor) {
	equal(t, want.log, strings.TrimSpace(m.Plugin+" "+m.Path+" "+m.Identifier))
	equal(t, want.source, m.Source)
	equal(t, want.lookback, m.Lookback)
	var got []npd.Rule
	for _, r := range m.Rules {
		got = append(got, r.Rule)
	}
	equal(t, want.rules, reported(got, m.Conditions))
}

func checkCheckMonitor(t *testing.T, want shippedFile, m *npd.CheckMonitor) {
	equal(t, want.source, m.Source)
	equal(t, want.interval, m.InvokeInterval)
	equal(t, want.timeout, m.Timeout)
	equal(t, 80, m.MaxOutputLength)
	var got []npd.Rule
	for _, r := range m.Rules {
		got = append(got, r.Rule)
		if r.Path == "" || r.Timeout > m.Timeout {
			t.Errorf("%q may run %v, of %v", r.Path, r.Timeout, m.Timeout)
		}
		equal(t, m.InvokeInterval, r.InvokeInterval)
	}
	equal(t, want.rules, reported(got, m.Conditions))
}

func reported(rules []npd.Rule, conditions []npd.Condition) []string {
	var out []string
	for _, r := range rules {
		s := "T " + r.Reason
		if r.Permanent() {
			i := slices.IndexFunc(conditions, func(c npd.Condition) bool { return c.Type == r.Condition })
			s = r.Condition + "/" + conditions[i].Reason + " " + r.Reason
		}
		out = append(out, s)
	}
	return out
}

// TestEveryShippedFileIsInTheTable checks that the table lists exactly the existing files.
func TestEveryShippedFileIsInTheTable(t *testing.T) {
	var files, table []string
	noError(t, fs.WalkDir(os.DirFS("testdata/config"), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	}))
	for _, f := range shipped() {
		table = append(table, f.name)
	}
	slices.Sort(files)
	slices.Sort(table)
	equal(t, table, files)
}

// TestShippedFilesTogether converts all files over the shipped rules. The detector must
// accept the result, with the conditions and reasons of the files.
func TestShippedFilesTogether(t *testing.T) {
	under, err := detector.Load(detector.Shipped())
	noError(t, err)
	var files []*npd.File
	for _, s := range shipped() {
		f, err := npd.LoadFile(filepath.Join("testdata/config", s.name), npd.Options{AnyProgram: true})
		noError(t, err)
		files = append(files, f)
	}
	set, err := npd.Convert(files, under)
	noError(t, err)

	both, err := detector.Load(detector.Shipped(), set.Layer)
	noError(t, err)
	known := make(map[string]string)
	for _, c := range both.Conditions() {
		known[c.Type] = c.HealthyReason
	}
	var want, have []string // conditions and reasons of rules
	for _, f := range files {
		if f.Skipped != "" {
			continue
		}
		var conditions []npd.Condition
		switch {
		case f.Log != nil:
			conditions = f.Log.Conditions
			for _, r := range f.Log.Rules {
				want = append(want, r.Condition+" "+r.Reason)
			}
		case f.Checks != nil:
			conditions = f.Checks.Conditions
			for _, r := range f.Checks.Rules {
				want = append(want, r.Condition+" "+r.Reason)
			}
		}
		for _, c := range conditions {
			equal(t, c.Reason, known[c.Type], c.Type+" of "+f.Name)
		}
	}
	for _, r := range both.Rules() {
		if r.Layer == 1 {
			have = append(have, r.Condition+" "+r.Reason)
		}
	}
	equal(t, want, have)
	// Three monitors of the health of runtime and kubelet give three conditions
	// and more rules; two monitors of the kernel log share one source.
	var names []string
	for _, l := range set.Logs {
		names = append(names, l.Name+" "+l.Path)
	}
	equal(t, []string{
		"kmsg /dev/kmsg", "file-var-log-kern-log /var/log/kern.log", "journald-systemd /var/log/journal", "journald-dockerd /var/log/journal",
		"file-var-log-docker-log /var/log/docker.log", "journald-abrt-notification /var/log/journal", "file-var-log-messages /var/log/messages",
	}, names)
	equal(t, 2, len(set.Stats))
	equal(t, 9, len(set.Checks))
}

package kernel

import (
	"bufio"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/lint"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// healthyLines is the number of lines that TestShippedPatternsOnHealthyFormats prints.
const healthyLines = 1_000_000

// TestShippedPatternsOnHealthyFormats prints a million lines from the format strings of level notice,
// info and debug in the kernels of the matrix. No shipped rule may report one, except the faults
// that the kernel prints at these levels.
func TestShippedPatternsOnHealthyFormats(t *testing.T) {
	testenv.OnlyInTestAll(t)
	formats := healthyFormats(t)
	if len(formats) < 5000 {
		t.Fatalf("only %d format strings", len(formats))
	}
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	patterns := set.PatternSet()
	m := patterns.NewMatcher("kmsg", event.KernelLogs)
	var hits logpattern.Hits
	r := rand.New(rand.NewPCG(1, 2))
	faults := make(map[string]string) // by format
	lines := 0
	for ; lines < healthyLines; lines++ {
		format := formats[lines%len(formats)]
		line := printed(r, format)
		m.Match([]byte(line), &hits)
		if len(hits.Hits) > 0 && faults[format] == "" {
			faults[format] = reportedFor(set, line)
		}
	}
	t.Logf("%d lines of %d format strings", lines, len(formats))
	known := faultsAtInfo()
	for _, format := range slices.Sorted(maps.Keys(faults)) {
		if rule := faults[format]; rule != "" && !slices.Contains(known[rule], format) {
			t.Errorf("rule %s reports %q", rule, format)
		}
	}
}

// faultsAtInfo returns, by rule, the format strings of faults that the kernel prints at a level of
// healthy lines.
func faultsAtInfo() map[string][]string {
	return map[string][]string{
		"kernel-tainted": {
			"%s: module verification failed: signature and/or required key missing - tainting kernel",
		},
		"nic-transmit-timeout": {
			"NETDEV WATCHDOG: %s (%s): transmit queue %u timed out",
		},
		"tcp-out-of-memory": {
			"TCP: out of memory -- consider tuning tcp_mem",
			"TCP: too many orphaned sockets",
		},
		"ata-error": {
			"ata%u.%02u: hard resetting link",
			"ata%u: hard resetting link",
		},
		"ceph-mds-hung": {
			"ceph: [%pU %llu]: mds%d caps stale",
			"ceph: [%pU %llu]: mds%d hung",
			"ceph: [%pU %llu]: mds%d reconnect denied",
			"ceph: [%pU %llu]: mds%d rejected session",
			"ceph: mds%d caps stale",
			"ceph: mds%d hung",
			"ceph: mds%d reconnect denied",
			"ceph: mds%d rejected session",
		},
		"ceph-trouble": {
			"libceph: mon%d %s session lost, hunting for new mon",
			"libceph: osd%d down",
		},
		"machine-check-logged": {
			"mce: [Hardware Error]: Machine check events logged",
		},
		"raid-degraded": {
			"md/raid10:%s: active with %d out of %d devices",
			"md/raid1:%s: active with %d out of %d mirrors",
			"md/raid:%s: raid level %d active with %d out of %d devices, algorithm %d",
		},
		"raid-read-error": {
			"md/raid1:%s: redirecting sector %llu to other mirror: %pg",
			"md/raid1:%s: redirecting sector %llu to other mirror: %s",
		},
		"clock-unstable": {
			"tsc: Marking TSC unstable due to clocksource watchdog",
		},
	}
}

// reportedFor returns the rule that reports a problem for the line, or "".
func reportedFor(set *detector.RuleSet, line string) string {
	e := detector.NewEngine(set)
	now := event.Moment{Boot: 3600e9}
	ev := &event.Event{
		Kind: event.Log, BootTime: event.Duration(now.Boot), CPU: event.NoCPU, Source: "log.kmsg",
		Log: &event.LogData{Log: "kmsg", Origin: event.OriginKernel, Text: event.LogText(line)},
	}
	for _, tr := range e.Observe(ev, now) {
		if p := tr.Problem; p != nil && p.State == problem.Firing {
			return p.Rule
		}
	}
	return ""
}

// healthyFormats returns the format strings whose level is notice, info or debug.
func healthyFormats(t *testing.T) []string {
	t.Helper()
	seen := make(map[string]bool)
	in := bufio.NewScanner(matrixStrings(t))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if s := in.Text(); len(s) > 2 && s[0] == soh && s[1] >= '5' && s[1] <= '7' {
			seen[s[2:]] = true
		}
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(seen))
}

// printed returns a line of a format string, with random values as a healthy machine has.
func printed(r *rand.Rand, format string) string {
	return lint.ReplaceConversions(format, func(c string) string {
		number := r.Uint64() >> r.IntN(64)
		switch kind := strings.TrimLeft(c, "%-+ #0123456789.*hlLztjq"); {
		case kind == "" || kind == "%":
			return "%"
		case kind[0] == 'p' && strings.HasPrefix(kind, "pI"):
			return fmt.Sprintf("10.0.%d.%d", r.IntN(256), r.IntN(256))
		case kind[0] == 'p' && strings.HasPrefix(kind, "pM"):
			return fmt.Sprintf("52:54:00:%02x:%02x:%02x", r.IntN(256), r.IntN(256), r.IntN(256))
		case kind[0] == 'p' && (strings.HasPrefix(kind, "ps") || strings.HasPrefix(kind, "pS")):
			return "do_one_initcall+0x5b/0x340"
		case kind[0] == 'p':
			return fmt.Sprintf("%016x", r.Uint64())
		case kind[0] == 's':
			return words()[r.IntN(len(words()))]
		case kind[0] == 'c':
			return string(rune('a' + r.IntN(26)))
		case kind[0] == 'x' || kind[0] == 'X':
			return strconv.FormatUint(number, 16)
		}
		return strconv.FormatUint(number, 10)
	})
}

// words returns names and words for %s.
func words() []string {
	return []string{
		"sda", "sdb1", "nvme0n1", "md0", "dm-3", "eth0", "enp3s0f1", "bond0", "0000:3b:00.1", "mlx5_core", "ata1", "zram0",
		"systemd", "kworker/2:1", "nfsd", "containerd", "10.0.0.7", "XFS (sda1)", "EXT4-fs (dm-0)", "CPU0", "CPU 3", "full",
		"enabled", "disabled", "on", "off", "yes", "no", "", "up", "Intel(R) Xeon(R)", "v1.2.3", "(none)", "0-7",
	}
}

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logsource"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// lastWords is what a kernel with many faults stored when it panicked.
//
//nolint:dupword // as the kernel has it
const lastWords = `Panic#2 Part1
<3>[  511.000000] Out of memory: Killed process 4711 (java) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0
<3>[  511.100000] blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0
<2>[  511.200000] EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0
<2>[  511.300000] EXT4-fs (sda1): Remounting filesystem read-only
<3>[  511.400000] INFO: task kworker/u8:3:1234 blocked for more than 120 seconds.
<1>[  512.300000] BUG: kernel NULL pointer dereference, address: 0000000000000020
<1>[  512.300100] #PF: supervisor read access in kernel mode
<4>[  512.300200] Oops: Oops: 0000 [#2] PREEMPT SMP NOPTI
<4>[  512.300300] CPU: 1 UID: 0 PID: 77 Comm: kworker/1:2 Tainted: G      D            6.12.0 #1
<4>[  512.300400] RIP: 0010:nfs_commit+0x12/0x80 [nfs]
<4>[  512.300500] Call Trace:
<4>[  512.300600]  process_one_work+0x174/0x330
<4>[  512.301000] ---[ end trace 0000000000000000 ]---
<0>[  512.302000] Kernel panic - not syncing: Fatal exception
<0>[  512.302100] Kernel Offset: 0x1000000 from 0xffffffff81000000
`

// With the default logs and rules, a panic before this boot is reported once, however often the
// agent starts, and nothing else follows from the faults before it.
func TestPanicBeforeThisBoot(t *testing.T) {
	root, state := t.TempDir(), t.TempDir()
	for _, dir := range []string{"sys/fs/pstore", "var/lib"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	record := filepath.Join(root, "sys/fs/pstore/dmesg-erst-7402000000000000001")
	if err := os.WriteFile(record, []byte(lastWords), 0o600); err != nil {
		t.Fatal(err)
	}
	when := time.Now().Add(-hostfs.BootTime() - 2*time.Hour).Truncate(time.Second).UTC()
	if err := os.Chtimes(record, when, when); err != nil {
		t.Fatal(err)
	}
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	configs, err := configured(t, "")
	if err != nil {
		t.Fatal(err)
	}
	configs = slices.DeleteFunc(configs, func(c logsource.Config) bool { return c.Plugin == logsource.KMsg }) // this machine's
	for _, want := range [][]string{
		{"kernel-panic 1 firing: the kernel panicked at " + when.Format(time.RFC3339) +
			", before this boot: Fatal exception; BUG: kernel NULL pointer dereference, address: 0000000000000020 in nfs_commit"},
		nil,
	} {
		logs, err := logsource.New(configs, set.PatternSet(), logsource.Options{StateDir: state, HostRoot: root, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, problemsOf(t, set, logs)); diff != "" {
			t.Errorf("(-want +have):\n%s", diff)
		}
	}
}

// problemsOf runs logs until all are read, and returns the problems.
func problemsOf(t *testing.T, set *detector.RuleSet, logs *logsource.Sources) (out []string) {
	t.Helper()
	e, mu := detector.NewEngine(set), sync.Mutex{}
	read := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- logs.Run(ctx, func(ev *event.Event) {
			mu.Lock()
			defer mu.Unlock()
			e.Observe(ev, event.Moment{Wall: time.Now(), Boot: hostfs.BootTime()})
			if ev.SourceUp != nil && ev.SourceUp.Stem == event.LogStem { // the last one, of all other logs
				close(read)
			}
		}, func() {})
	}()
	select {
	case <-read:
	case <-time.After(testenv.Within(20 * time.Second)):
		t.Error("the logs are not read")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, p := range e.Problems() {
		out = append(out, fmt.Sprintf("%s %d %s: %s", p.Rule, p.Count, p.State, p.Message))
	}
	return out
}

package block

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// A task that was moved to another CPU has no timestamp until it runs there.
func TestLastRan(t *testing.T) {
	root := t.TempDir()
	l := newLastRan(hostfs.New(root))
	l.now[3] = 90 * time.Second
	for stamp, want := range map[string]time.Duration{
		"se.exec_start                                :         60000.250000\n": 30*time.Second - 250*time.Microsecond,
		"se.exec_start                                :             0.000000\n": 0,
		"se.exec_start                                :         90001.000000\n": 0, // it ran in the meantime
		"se.vruntime                                  :             1.000000\n": 0,
	} {
		if err := os.MkdirAll(filepath.Join(root, "proc/7"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "proc/7/sched"), []byte("web (7, #threads: 1)\n-----\n"+stamp), 0o600); err != nil {
			t.Fatal(err)
		}
		if ago, ok := l.ago(7, 3); ago != want || ok != (want > 0) {
			t.Errorf("%q: %s, %t, want %s", stamp, ago, ok, want)
		}
	}
}

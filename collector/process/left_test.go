package process

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/kernosis/kernosis/vmtest/await"
	"github.com/kernosis/kernosis/vmtest/kernellock"
	"github.com/kernosis/kernosis/vmtest/loopdisk"
	"github.com/kernosis/kernosis/vmtest/testprogram"
)

// TestStuckChildHoldsUpTheNextRun: a program ends, and a process that it has started can't be
// killed. Such processes must not pile up.
func TestStuckChildHoldsUpTheNextRun(t *testing.T) {
	for name, c := range map[string]struct {
		group bool
		child string // runs what follows
	}{
		"in the process group": {child: "sh -c"},
		"in the control group": {group: true, child: "setsid sh -c"},
	} {
		t.Run(name, func(t *testing.T) {
			var g *Group
			if c.group {
				g = member(t, groups(t, Limits{Processes: 100}), "a")
			}
			kernellock.HoldFor(t) // others would detect the hung task
			disk, began := loopdisk.NewExt4(t, 8<<20, ""), filepath.Join(t.TempDir(), "began")
			p := Program{Timeout: patience, Group: g, Path: testprogram.Script(t,
				c.child+" 'echo >>"+began+"; : >"+disk.Dir+"/file' >/dev/null 2>&1 &\n"+
					"while ! grep -q ') [DZ] ' /proc/$!/stat && kill -0 $!; do :; done")}
			children := func() int {
				t.Helper()
				b, err := os.ReadFile(began)
				if err != nil {
					t.Fatal(err)
				}
				return bytes.Count(b, []byte("\n"))
			}
			var runs Runs
			thaw := disk.Freeze()
			if o := runs.Run(t.Context(), &p); o.Err != nil || !o.State.Success() {
				t.Fatalf("%v, %v", o.Err, o.State)
			}
			for range 2 {
				if o := runs.Run(t.Context(), &p); !errors.Is(o.Err, ErrStuck) || o.State != nil {
					t.Errorf("beside a process that is left: %v, %v", o.Err, o.State)
				}
			}
			if n := children(); n != 1 {
				t.Errorf("%d processes are stuck, want 1", n)
			}
			thaw()
			await.Until(t, "the next run", patience, func() bool { return runs.Run(t.Context(), &p).Err == nil })
			if n := children(); n != 2 {
				t.Errorf("%d runs, want 2", n)
			}
		})
	}
}

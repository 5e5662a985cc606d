package hostfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// Stacks of several kernels, each with its cause. Offsets are irrelevant; for 5.10, 5.14 and 6.1
// the functions are from the sources, not from a recorded stack.
func TestWaitCauses(t *testing.T) {
	files, err := filepath.Glob("testdata/stacks/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil || len(a.Files) != 2 || a.Files[0].Name != "stack" || a.Files[1].Name != "want" {
			t.Fatal(file, err)
		}
		frames := ParseKernelStack(string(a.Files[0].Data))
		c := WaitCauseOf(frames)
		got := fmt.Sprintf("%s\n%s\ntop: %s\n", c.Kind, c.String(), TopFrame(frames))
		kinds[c.Kind] = true
		if *update {
			a.Files[1].Data = []byte(got)
			if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := string(a.Files[1].Data); got != want {
			t.Errorf("%s: %swant: %s", file, got, want)
		}
	}
	for _, kind := range []string{WaitDisk, WaitNFS, WaitLock, WaitFrozenFilesystem, WaitFUSE, WaitJournal, WaitMemoryReclaim, WaitUnknown} {
		if !kinds[kind] {
			t.Errorf("no stack means %s", kind)
		}
	}
}

func FuzzWaitCause(f *testing.F) {
	f.Add("io_schedule+0x1\nnfs_wait+0x1 [nfs]\n")
	f.Fuzz(func(t *testing.T, s string) {
		frames := strings.Split(s, "\n")
		if c := WaitCauseOf(frames); c.Kind == "" || c.Kind == percpu || c.Reason == "" {
			t.Errorf("%q: %+v", frames, c)
		}
		TopFrame(frames)
	})
}

func BenchmarkWaitCause(b *testing.B) {
	frames := ParseKernelStack(strings.Repeat("[<0>] a_function_of_no_meaning+0x1/0x2\n", 20))
	for b.Loop() {
		WaitCauseOf(frames)
	}
}

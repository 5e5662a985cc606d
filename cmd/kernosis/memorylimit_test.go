package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	file := filepath.Join(t.TempDir(), "memory.max")
	for _, c := range []struct {
		text string
		want int64
	}{{"max\n", before}, {"402653184\n", 322122544}} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		limitMemory(file)
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("%q: %d, want %d", c.text, got, c.want)
		}
	}
}

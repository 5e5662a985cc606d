package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestDefaults(t *testing.T) {
	path := testenv.Script(t, "exit 0")
	c, err := Config{Name: "t", Checks: []Check{{Name: "a", Path: path}, {Name: "b", Path: path, Timeout: time.Second, InvokeInterval: time.Minute}}}.normal()
	if err != nil {
		t.Fatal(err)
	}
	if c.InvokeInterval != 30*time.Second || c.Timeout != 5*time.Second || c.MaxOutputLength != 80 || c.Concurrency != 3 {
		t.Errorf("%+v", c)
	}
	if a := c.Checks[0]; a.Timeout != 5*time.Second || a.InvokeInterval != 30*time.Second {
		t.Errorf("%+v", a)
	}
	if b := c.Checks[1]; b.Timeout != time.Second || b.InvokeInterval != time.Minute {
		t.Errorf("%+v", b)
	}
}

func TestMistakesNameTheirField(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	good := testenv.Script(t, "exit 0")
	_, err := New(Config{
		InvokeInterval: -time.Second, Timeout: -1, MaxOutputLength: -1, Concurrency: -3,
		Checks: []Check{
			{Path: good},
			{Name: "a", Path: filepath.Join(dir, "missing")},
			{Name: "a", Path: plain},
			{Name: "b", Path: dir},
			{Name: "c"},
			{Name: "d", Path: good, InvokeInterval: -1},
		},
	}, nil, nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"name is missing", "invokeInterval -1s: want more than 0", "timeout -1ns", "maxOutputLength -1", "concurrency -3",
		"checks[0].name is missing", "checks[1].path: stat " + dir + "/missing: no such file",
		`checks[2].name "a": already used by another check`, "checks[2].path: run " + plain + ": permission denied",
		"checks[3].path: run " + dir + ": not a file", "checks[4].path: missing", "checks[5].invokeInterval -1ns",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if _, err := New(Config{Name: "t", Checks: []Check{{Name: "a", Path: good, Timeout: 6 * time.Second}}}, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "checks[0].timeout 6s: want more than 0 and at most the timeout of all, 5s") {
		t.Errorf("error %v", err)
	}
	if _, err := New(Config{Name: "t"}, nil, nil); err == nil || !strings.Contains(err.Error(), `checks "t": checks: want at least one`) {
		t.Errorf("error %v", err)
	}
}

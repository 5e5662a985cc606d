package machine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestShippedConfigLoads(t *testing.T) {
	c, err := LoadConfig("../vm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := filepath.Abs("../../bin/kernosis")
	if err != nil {
		t.Fatal(err)
	}
	if c.memoryArg() != "1G" || c.CPUs != 2 || !slices.Contains(c.Files, agent) || !slices.Contains(c.Programs, "dmsetup") {
		t.Errorf("%+v", c)
	}
}

func TestDefaultsOfAnEmptyConfig(t *testing.T) {
	for _, text := range []string{"", "# nothing\n"} {
		if c, err := parseConfig([]byte(text)); err != nil || c.Memory != "1GiB" || c.CPUs != 2 {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
}

func TestBadConfigsNameTheField(t *testing.T) {
	for text, want := range map[string]string{
		"memory: 1GiB\nmemroy: 2GiB": "line 2",
		"cpus: many":                 "line 1",
		"cpus: 0":                    "cpus: 0 is not within",
		"memory: 1GB":                `memory: "1GB" is no size`,
		"memory: 0MiB":               "memory:",
		"load: [loop, '']":           "load[1]: is empty",
		"load: {a: b}":               "line 1",
		"programs: sh":               "line 1",
	} {
		path := filepath.Join(t.TempDir(), "vm.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadConfig(path); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%q: %v, want it to name %q", text, err, want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	shipped, err := os.ReadFile("../vm.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(shipped)
	f.Add([]byte("memory: 512MiB\nqemu: [-s]\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := parseConfig(raw)
		if err == nil && (c.CPUs < 1 || c.memoryArg() == "") {
			t.Errorf("%q gave %+v", raw, c)
		}
	})
}

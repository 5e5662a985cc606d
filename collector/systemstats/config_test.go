package systemstats

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
)

func TestMetricsAreChosenAndRenamed(t *testing.T) {
	cfg := node(t, files())
	cfg.Metrics = map[string]string{"cpu/load_1m": "compute.googleapis.com/guest/load-1m", "cpu/load_5m": "", "host/uptime": "1up", "memory/unevictable_used": "_x"}
	got := exposed(t, newCollector(t, cfg))
	for _, line := range []string{
		"compute_googleapis_com_guest_load_1m 0.52\n",
		`key_1up{kernel_version="6.12.48+deb13-amd64",os_version="debian 13 (trixie)"} 350735` + "\n",
		"key_x 3.277312e+07\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("no %s in\n%s", line, got)
		}
	}
	if n := strings.Count(got, "\n"); n != 3 {
		t.Errorf("%d metrics, want 3:\n%s", n, got)
	}
}

func TestMistakes(t *testing.T) {
	_, err := New(Config{
		InvokeInterval: -time.Second, ExcludeInterfaceRegexp: "(",
		Metrics: map[string]string{"cpu/load_2m": "x", "cpu/load_1m": "same/name", "cpu/load_5m": "same.name"},
	}, nil)
	for _, want := range []string{
		"invokeInterval -1s", "excludeInterfaceRegexp: error parsing", `metricsConfigs["cpu/load_2m"]: no such metric`,
		`metricsConfigs["cpu/load_5m"].displayName "same.name": the name same_name is already used by "cpu/load_1m"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if _, err := New(Config{ProcPath: "/no/such"}, nil); err == nil || !strings.Contains(err.Error(), "procPath: ") {
		t.Errorf("error %v", err)
	}
	cfg := node(t, files())
	cfg.KnownModulesConfigPath = filepath.Join(cfg.Root, "broken.json")
	if err := os.WriteFile(cfg.KnownModulesConfigPath, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg, nil); err == nil || !strings.Contains(err.Error(), "knownModulesConfigPath: "+cfg.KnownModulesConfigPath) {
		t.Errorf("error %v", err)
	}
	var log bytes.Buffer
	cfg.KnownModulesConfigPath = "/no/such.json"
	if _, err := New(cfg, slog.New(slog.NewTextHandler(&log, nil))); err != nil || !strings.Contains(log.String(), "/no/such.json") {
		t.Errorf("error %v, log %s", err, log.String())
	}
}

func TestRegistersBesideOthers(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(newCollector(t, Config{Metrics: all()}))
	if _, err := r.Gather(); err != nil {
		t.Error(err)
	}
}

func TestModuleListIsBounded(t *testing.T) {
	names := strings.Fields(strings.Repeat("m ", maxUnknown+5))
	if got := moduleList(names); !strings.HasSuffix(got, "m,m,+5") || strings.Count(got, "m") != maxUnknown {
		t.Errorf("%s", got)
	}
}

func TestOSVersion(t *testing.T) {
	for text, want := range map[string]string{
		"ID=cos\nVERSION=105\nBUILD_ID=17412.1.1\n":             "cos 105-17412.1.1",
		"ID=\"centos\"\nVERSION=\"7 (Core)\"\n":                 "centos 7 (Core)",
		"ID=talos\nVERSION_ID=v1.9.0\n":                         "talos v1.9.0",
		"# comment=1\nID='arch'\nNAME=\"a \\\"b\\\"\"\n":        "arch",
		"ID=ubuntu\nVERSION=\"16.04.6 LTS (Xenial Xerus)\"\n\n": "ubuntu 16.04.6 LTS (Xenial Xerus)",
	} {
		cfg := node(t, map[string]string{"etc/os-release": text})
		if got, err := osVersion(cfg.Root); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	// An absolute link leads below the root.
	cfg := node(t, map[string]string{"etc/static/os-release": "ID=nixos\nVERSION_ID=25.11\n"})
	if err := os.Symlink("/etc/static/os-release", filepath.Join(cfg.Root, "etc/os-release")); err != nil {
		t.Fatal(err)
	}
	if got, err := osVersion(cfg.Root); err != nil || got != "nixos 25.11" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestFileSystemThatHangsIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollector(t, Config{Metrics: map[string]string{}})
		var asked atomic.Int32
		answer := make(chan struct{})
		ask := func() (st unix.Statfs_t, err error) {
			asked.Add(1)
			<-answer
			return st, nil
		}
		for range 3 {
			if _, err := c.inTime("/", ask); !errors.Is(err, bounded.ErrLate) {
				t.Errorf("error %v", err)
			}
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		close(answer)
		synctest.Wait()
		if _, err := c.inTime("/", ask); err != nil || asked.Load() != 2 {
			t.Errorf("asked %d times, error %v", asked.Load(), err)
		}
		if len(c.late) > 0 {
			t.Error("it is kept as one that does not answer")
		}
	})
}

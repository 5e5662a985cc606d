package systemstats

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

var update = flag.Bool("update", false, "write golden files")

func TestMain(m *testing.M) { os.Exit(testenv.CheckLeaks(m.Run)) }

// all chooses every metric, under its own name.
func all() map[string]string {
	names := map[string]string{}
	for _, m := range table() {
		names[m.id] = m.id
	}
	return names
}

// newCollector returns a Collector that has sampled once.
func newCollector(t *testing.T, cfg Config) *Collector {
	t.Helper()
	if cfg.Metrics == nil {
		cfg.Metrics = all()
	}
	c, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Sample()
	return c
}

// exposed returns the metrics as Prometheus gets them, without comments.
func exposed(t *testing.T, c *Collector) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text, b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// node creates a node's files below a folder, and returns the configuration for it. Values that
// begin with "-> " are links.
func node(t *testing.T, files map[string]string) Config {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		target, link := strings.CutPrefix(content, "-> ")
		var err error
		if link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"proc", "sys"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Config{ProcPath: filepath.Join(root, "proc"), SysPath: filepath.Join(root, "sys"), Root: root}
}

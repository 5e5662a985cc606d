package config_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
)

type settings struct {
	Dir   string        `mapstructure:"state-dir" yaml:"state-dir"`
	Every time.Duration `mapstructure:"every" yaml:"every"`
	Names []string      `mapstructure:"name" yaml:"name"`
	Rate  float64       `mapstructure:"rate" yaml:"rate"`
	Part  part          `mapstructure:",squash" yaml:",inline"`

	Labels map[string]string `mapstructure:"-" yaml:"labels"` // only in the file
	kept   string            // not a key
}

type part struct {
	Port uint16 `mapstructure:"port" yaml:"port"`
	On   bool   `mapstructure:"on" yaml:"on"`
}

// parsed returns the flags of a command line.
func parsed(t *testing.T, args []string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.String("config", "", "")
	fs.String("state-dir", "/var", "")
	fs.Duration("every", time.Second, "")
	fs.StringSlice("name", []string{"default"}, "")
	fs.Float64("rate", 1, "")
	fs.Uint16("port", 1, "")
	fs.Bool("on", true, "")
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return fs
}

// load reads a command line, variables and a file, each unless it is empty.
func load(t *testing.T, file string, env map[string]string, args ...string) (settings, config.Origins, []string, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "kernosis.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	for k, v := range env {
		t.Setenv(k, v)
	}
	s := settings{kept: "kept"}
	origins, warnings, err := config.Load(parsed(t, args), os.Environ(), &s)
	return s, origins, warnings, err
}

func TestTheFirstWins(t *testing.T) {
	file := "state-dir: /file\nevery: 3s\nname: [file]\nport: 9\nlabels: {CamelCase: \"yes\"}\n"
	s, origins, warnings, err := load(t, file, map[string]string{
		"KERNOSIS_STATE_DIR": "/env", "KERNOSIS_NAME": "a,b", "KERNOSIS_EVERY": "2s", "KERNOSIS_LISTN": "x",
		"KERNOSIS_PORT": "tcp://10.0.0.1:443", "KERNOSIS_SERVICE_HOST": "10.0.0.1", "KERNOSIS_ON": "", "KERNOSIS_LABELS": "",
		"KERNOSIS_LABELS_PORT": "tcp://10.0.0.2:443", "KERNOSIS_LABELS_SERVICE_HOST": "10.0.0.2", "KERNOSIS_LABELS_SERVICE_PORT": "443",
	}, "--state-dir", "/flag")
	if err != nil {
		t.Fatal(err)
	}
	if s.Dir != "/flag" || s.Every != 2*time.Second || !slices.Equal(s.Names, []string{"a", "b"}) || s.Rate != 1 || s.Part != (part{Port: 9, On: true}) ||
		!maps.Equal(s.Labels, map[string]string{"CamelCase": "yes"}) || s.kept != "kept" {
		t.Errorf("%+v", s)
	}
	for key, want := range map[string]string{
		"state-dir": "flag --state-dir", "every": "env KERNOSIS_EVERY", "name": "env KERNOSIS_NAME", "rate": "", "on": "",
	} {
		if origins[key] != want {
			t.Errorf("%s comes from %q, want %q", key, origins[key], want)
		}
	}
	if from := origins.Of("labels.CamelCase"); !strings.HasSuffix(from, "kernosis.yaml:5") {
		t.Errorf("a label comes from %q", from)
	}
	if from := origins.Of("port[3].x"); !strings.HasSuffix(from, "kernosis.yaml:4") {
		t.Errorf("a part of a value comes from %q", from)
	}
	if !slices.Equal(warnings, []string{"unknown environment variable KERNOSIS_LISTN"}) {
		t.Errorf("warnings %q", warnings)
	}
}

func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		env  map[string]string
		want []string
	}{
		"unknown keys":      {"state-dir: /a\nstate-dri: /b\nlabels: {}\nprot: 9\n", nil, []string{`kernosis.yaml:2: unknown key state-dri, did you mean "state-dir"?`, `kernosis.yaml:4: unknown key prot, did you mean "port"?`}},
		"a wrong type":      {"\nport: many\n", nil, []string{"kernosis.yaml:2: "}},
		"no YAML":           {"state-dir: [\n", nil, []string{"kernosis.yaml"}},
		"a variable":        {"", map[string]string{"KERNOSIS_EVERY": "soon"}, []string{`KERNOSIS_EVERY: "soon", want a duration such as 30s`}},
		"a variable's bool": {"", map[string]string{"KERNOSIS_ON": "maybe"}, []string{`KERNOSIS_ON: "maybe", want true or false`}},
		"a number":          {"", map[string]string{"KERNOSIS_RATE": "fast"}, []string{`KERNOSIS_RATE: "fast", want a number`}},
		"a port":            {"", map[string]string{"KERNOSIS_PORT": "70000"}, []string{`KERNOSIS_PORT: "70000", want a whole number up to 65535`}},
		"only in the file":  {"", map[string]string{"KERNOSIS_LABELS": "a=b"}, []string{"KERNOSIS_LABELS: can't be set by a variable: set labels in the configuration file (--config)"}},
		"no such file":      {"", map[string]string{"KERNOSIS_CONFIG": "/no/such/file.yaml"}, []string{"configuration: open /no/such/file.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, _, err := load(t, c.file, c.env)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
		})
	}
}

func TestErrorf(t *testing.T) {
	o := config.Origins{"a": "flag --a", "b": "env KERNOSIS_B", "c": "/etc/k.yaml:3", "d": config.Default}
	for field, want := range map[string]string{
		"a": "--a: no", "b": "KERNOSIS_B: no", "c[1].x": "/etc/k.yaml:3: c[1].x: no", "d": "d: no", "e": "e: no",
	} {
		if err := o.Errorf(field, "no"); err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

// An empty file has no effect; a second document is not silently ignored.
func TestDocumentsOfAFile(t *testing.T) {
	for _, file := range []string{"\n", "# nothing\n", "---\n", "---\n# nothing\n...\n", "{}\n", "null\n"} {
		s, origins, warnings, err := load(t, file, nil)
		if delete(origins, "config"); err != nil || s.Part.Port != 1 || len(origins) > 0 || len(warnings) > 0 {
			t.Errorf("%q: %+v, %v, %v, %v", file, s, origins, warnings, err)
		}
	}
	for _, file := range []string{"port: 9\n", "---\nport: 9\n", "port: 9\n---\n", "port: 9\n...\n"} {
		if s, _, _, err := load(t, file, nil); err != nil || s.Part.Port != 9 {
			t.Errorf("%q: %+v, %v", file, s, err)
		}
	}
	for _, file := range []string{"port: 9\n---\nport: 8\n", "---\n---\nport: 8\n"} {
		if _, _, _, err := load(t, file, nil); err == nil || !strings.Contains(err.Error(), "kernosis.yaml:3: ") {
			t.Errorf("%q: %v", file, err)
		}
	}
	if _, _, _, err := load(t, "port: 9\n---\n{\n", nil); err == nil {
		t.Error("a second document that is no YAML is not seen")
	}
}

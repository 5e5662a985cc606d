package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/collector/logsource"
)

// configured returns the logs that a command line, and a configuration file if any, configure.
func configured(t *testing.T, file string, args ...string) ([]logsource.Config, error) {
	t.Helper()
	c, err := loaded(t, file, args...)
	if err != nil {
		return nil, err
	}
	return c.logs()
}

func loaded(t *testing.T, file string, args ...string) (Config, error) {
	t.Helper()
	cmd := &cobra.Command{}
	RunFlags(cmd.Flags())
	if file != "" {
		path := filepath.Join(t.TempDir(), "kernosis.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return Load(cmd.Flags(), os.Environ())
}

const documentedLogs = `
logs:
- plugin: crash
- plugin: kmsg
  lookback: 10m
- name: kern
  plugin: file
  path: /var/log/kern.log
  lookback: 1h
  delay: 1m
  format:
    timestamp: '^.{15}'
    timestampFormat: Jan _2 15:04:05
    message: 'kernel: (.*)'
  skip: [audit]
- plugin: journald
  identifiers: [kubelet, containerd]
`

func TestConfiguredLogs(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		args       []string
		want       string
	}{
		{"default", "", nil, "kmsg=kmsg: 5m0s|crash=crash: 24h0m0s"},
		{"none", "", []string{"--log", "none"}, ""},
		{"flags", "", []string{"--log", "kmsg", "--log", "journald:/var/log/journal", "--log", "file:/var/log/kern.log,sys=file:/var/log/syslog"},
			"kmsg=kmsg: 5m0s|journald=journald:/var/log/journal 0s|kern.log=file:/var/log/kern.log 0s|sys=file:/var/log/syslog 0s"},
		{"file", documentedLogs, nil, "crash=crash: 24h0m0s|kmsg=kmsg: 10m0s|kern=file:/var/log/kern.log 1h0m0s|journald=journald: 0s"},
		{"file and flag", "logs: [{plugin: kmsg, lookback: 0s}]", []string{"--log", "file:/a"}, "kmsg=kmsg: 0s|a=file:/a 0s"},
		{"simple ones in a file", "log: [kmsg, journald]", nil, "kmsg=kmsg: 5m0s|journald=journald: 0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			logs, err := configured(t, tt.file, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, l := range logs {
				have = append(have, fmt.Sprintf("%s=%s:%s %s", l.Name, l.Plugin, l.Path, l.Lookback))
			}
			if strings.Join(have, "|") != tt.want {
				t.Errorf("have %q\nwant %q", have, tt.want)
			}
		})
	}
	logs, err := configured(t, documentedLogs)
	if err != nil {
		t.Fatal(err)
	}
	if l := logs[2]; l.Delay != time.Minute || l.Format.Message != "kernel: (.*)" || l.Format.TimestampFormat != "Jan _2 15:04:05" ||
		!slices.Equal(l.Skip, []string{"audit"}) || !slices.Equal(logs[3].Identifiers, []string{"kubelet", "containerd"}) {
		t.Errorf("have %+v", logs)
	}
	t.Setenv("KERNOSIS_LOG", "journald,file:/x/y.log")
	if logs, err = configured(t, ""); err != nil || len(logs) != 2 || logs[1].Name != "y.log" {
		t.Errorf("from the environment: %+v (%v)", logs, err)
	}
}

// Nothing else shows that the records of panics are not read.
func TestLogsWithoutCrash(t *testing.T) {
	for _, tt := range []struct {
		file string
		args []string
		want bool
	}{
		{"", nil, false},
		{"", []string{"--log", "none"}, false},
		{"", []string{"--log", "kmsg"}, true},
		{"logs: [{plugin: kmsg}]", nil, true},
		{"logs: [{plugin: kmsg}]", []string{"--log", "crash"}, false},
		{"logs: [{plugin: kmsg}, {plugin: crash}]", nil, false},
	} {
		c, err := loaded(t, tt.file, tt.args...)
		if err != nil {
			t.Fatal(err)
		}
		if warned := strings.Contains(strings.Join(c.Warnings(), "\n"), "kernel panics of earlier boots are not reported"); warned != tt.want {
			t.Errorf("%q, %q: warnings %q", tt.file, tt.args, c.Warnings())
		}
	}
}

// TestDocumentedLogs checks that the example of docs/logs.md is the one tested here.
func TestDocumentedLogs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```yaml"+documentedLogs+"```") {
		t.Error("docs/logs.md has another example")
	}
}

// A mistake is reported with file, line and key.
func TestMistakenLogs(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		args       []string
		want       []string
	}{
		{"unknown key", "logs:\n- plugin: kmsg\n  pth: /x\n", nil, []string{"kernosis.yaml:3: unknown key pth"}},
		{"duration", "logs:\n- plugin: kmsg\n  lookback: 5\n  delay: soon\n", nil, []string{"kernosis.yaml:4: "}},
		{"plugin", "log-level: info\nlogs:\n- name: a\n  plugin: syslog\n", nil, []string{`kernosis.yaml:4: logs[0].plugin: "syslog": want`}},
		{"each mistake", "logs:\n- plugin: file\n- plugin: kmsg\n  delay: -1s\n  skip: [x]\n", nil,
			[]string{"kernosis.yaml:2: logs[0].path: is missing", "kernosis.yaml:4: logs[1].delay: -1s is negative", "kernosis.yaml:5: logs[1].skip: "}},
		{"name twice", "logs:\n- plugin: kmsg\n- name: kmsg\n  plugin: journald\n", nil, []string{`kernosis.yaml:3: logs[1].name: "kmsg" is already used by`, "kernosis.yaml:2"}},
		{"expression", "logs:\n- plugin: file\n  path: /x\n  format:\n    timestamp: '('\n    timestampFormat: Jan\n", nil, []string{"kernosis.yaml:2: logs[0].plugin:", "timestamp: error parsing regexp"}},
		{"flag", "", []string{"--log", "file"}, []string{`--log: "file": path: is missing`}},
		{"flag twice", "", []string{"--log", "kmsg,kmsg"}, []string{`--log: "kmsg": name: "kmsg" is already used by log kmsg`}},
		{"flag and none of the kind", "", []string{"--log", "dmesg"}, []string{`--log: unknown source "dmesg", did you mean "kmsg"?`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			logs, err := configured(t, tt.file, tt.args...)
			if err == nil {
				t.Fatalf("have %+v, want a mistake", logs)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nwants %q", err, want)
				}
			}
		})
	}
}

package npd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/detector/npd"
)

const (
	logHead   = `{"plugin": "kmsg", "source": "s", `
	checkHead = `{"plugin": "custom", "source": "s", `
)

func TestMistakes(t *testing.T) {
	for _, tc := range []struct {
		name, content string
		kind          npd.Kind
		want          []string
	}{
		{name: "no json", content: "{\n  \"plugin\": kmsg\n}", want: []string{"f.json:2:13: json: invalid character 'k' looking for beginning of value"}},
		{name: "cut off", content: `{"plugin": "kmsg"`, want: []string{"f.json:1:17: json: unexpected end of JSON input"}},
		{name: "empty", content: ``, want: []string{"f.json:1:1: json: unexpected end of JSON input"}},
		{name: "two documents", content: "{} {}", want: []string{"f.json:1:4: json: invalid character '{' after top-level value"}},
		{name: "column counts characters", content: `{"größe": "ü", x}`, want: []string{"f.json:1:16: json: invalid character 'x' looking for beginning of object key string"}},
		{name: "a comma alone is no list", content: `{"plugin":"kmsg","rules":[,]}`, want: []string{"f.json:1:27: json: invalid character ',' looking for beginning of value"}},
		{name: "not utf-8", content: "{\"a\": \"\xff\"}", want: []string{"f.json:1:8: is not UTF-8"}},
		{name: "deep", content: strings.Repeat("[", 100) + strings.Repeat("]", 100), want: []string{"f.json:1:33: nested deeper than 32"}},
		{name: "a list", content: `[1]`, want: []string{"f.json:1:1: this is not a configuration of node-problem-detector: it has neither a plugin nor statistics"}},
		{name: "no plugin", content: `{"logPath": "/dev/kmsg"}`, want: []string{"f.json:1:1: plugin: is missing: want kmsg, journald, filelog or custom"}},
		{name: "unknown plugin", content: `{"plugin": "syslog"}`, want: []string{"f.json:1:12: plugin: unknown plugin syslog: want kmsg, journald, filelog or custom"}},
		{name: "another kind", content: `{"plugin": "custom"}`, kind: npd.SystemLog, want: []string{"f.json:1:1: this is not a configuration of system-log-monitor but of custom-plugin-monitor"}},
		{name: "an exporter's", content: `{"apiEndpoint": "x"}`, kind: npd.SystemStats, want: []string{"f.json:1:1: this is not a configuration of system-stats-monitor but of exporter.stackdriver"}},
		{name: "types", content: `{"plugin": "kmsg", "bufferSize": "10", "lookback": 5, "rules": {}, "conditions": [1], "metricsReporting": "yes", "pluginConfig": []}`, want: []string{
			"f.json:1:34: bufferSize: want a number, have text",
			"f.json:1:52: lookback: want text, have a number",
			"f.json:1:64: rules: want a list, have an object",
			"f.json:1:83: conditions[0]: want an object, have a number",
			"f.json:1:83: conditions[0].type: is missing",
			"f.json:1:83: conditions[0].reason: is missing: want the reason while nothing is wrong",
			"f.json:1:107: metricsReporting: want true or false, have text",
			"f.json:1:130: pluginConfig: want an object, have a list",
		}},
		{name: "numbers", content: `{"plugin": "kmsg", "bufferSize": -1, "lookback": "-5m", "delay": "soon"}`, want: []string{
			"f.json:1:34: bufferSize: want a whole number from 0 to 1000000, have -1",
			"f.json:1:50: lookback: is negative: -5m",
			"f.json:1:66: delay: want a duration such as 5m, have \"soon\"",
		}},
		{name: "journald", content: `{"plugin": "journald"}`, want: []string{"f.json:1:1: pluginConfig.source: is missing: want the SYSLOG_IDENTIFIER of the lines to read"}},
		{name: "filelog", content: `{"plugin": "filelog", "pluginConfig": {"timestamp": "(", "message": "(.*)"}, "skipList": [""]}`, want: []string{
			"f.json:1:1: logPath: is missing",
			"f.json:1:39: pluginConfig.timestampFormat: is missing: want the layout of a line's time",
			"f.json:1:53: pluginConfig.timestamp: error parsing regexp: missing closing ): `(`",
			"f.json:1:90: skipList: an empty text matches every line, so none would be read",
		}},
		{name: "rules", content: logHead + `"conditions": [{"type": "Ready", "reason": "Fine"}, {"type": "A", "reason": "not fine"}, {"type": "A", "reason": "Fine"}],
"rules": [
{"type": "sometimes", "reason": "R", "pattern": "x"},
{"type": "temporary", "pattern": "x"},
{"type": "permanent", "reason": "R", "pattern": "x"},
{"type": "permanent", "condition": "B", "reason": "R", "pattern": "x"},
{"type": "temporary", "reason": "R", "pattern": "a(b"},
{"type": "temporary", "reason": "R", "pattern": "(?:abcdefghij){150}"},
{"type": "temporary", "reason": "R"},
{"type": "temporary", "reason": "R", "pattern": "x", "clearPattern": "[", "clearAfter": "-1s"},
{"type": "temporary", "reason": "R", "pattern": "x", "clearAfter": "never"}
]}`, want: []string{
			"f.json:1:59: conditions[0].type: condition Ready is reserved for Kubernetes, like all that end in Pressure",
			"f.json:1:111: conditions[1].reason: not fine is not PascalCase (letters and digits, at most 128)",
			"f.json:1:133: conditions[2].type: condition A is listed twice, first at conditions[1]",
			"f.json:3:10: rules[0].type: want temporary or permanent, have sometimes",
			"f.json:4:1: rules[1].reason: is missing",
			"f.json:5:1: rules[2].condition: is missing: a permanent problem needs one",
			"f.json:6:36: rules[3].condition: condition B has no default under conditions",
			"f.json:7:49: rules[4].pattern: expression: error parsing regexp: missing closing ): `a(b`",
			"f.json:8:49: rules[5].pattern: expression: compiles to 1500 instructions, more than 1000: use fewer repetitions or smaller character classes",
			"f.json:9:1: rules[6].pattern: is missing",
			"f.json:10:70: rules[7].clearPattern: expression: error parsing regexp: missing closing ]: `[`",
			"f.json:10:89: rules[7].clearAfter: is negative: -1s",
			"f.json:11:68: rules[8].clearAfter: never is only for permanent problems without clearPattern",
		}},
		{name: "checks", content: checkHead + `"pluginConfig": {"invoke_interval": "-1s", "timeout": "3s", "max_output_length": 5000, "concurrency": 0},
"rules": [
{"type": "temporary", "reason": "R", "path": "/missing"},
{"type": "temporary", "reason": "R"},
{"type": "temporary", "reason": "R", "path": "/missing/log-counter", "timeout": "4s", "args": "x", "invoke_interval": "1ms"}
]}`, want: []string{
			"f.json:1:73: pluginConfig.invoke_interval: is negative: -1s",
			"f.json:1:118: pluginConfig.max_output_length: want a whole number from 1 to 4096, have 5000",
			"f.json:1:139: pluginConfig.concurrency: want a whole number from 1 to 100, have 0",
			"f.json:3:46: rules[0].path: /missing does not exist",
			"f.json:4:1: rules[1].path: is missing: want the program that checks",
			"f.json:5:81: rules[2].timeout: 4s is more than the 3s that pluginConfig.timeout allows",
			"f.json:5:95: rules[2].args: want a list, have text",
			"f.json:5:119: rules[2].invoke_interval: want at least 1s, have 1ms",
		}},
		{name: "statistics", content: `{"invokeInterval": "0", "disk": {"lsblkTimeout": "2m", "metricsConfigs": []}, "net": {"excludeInterfaceRegexp": "("}}`, want: []string{
			"f.json:1:20: invokeInterval: want at least 1s, have 0",
			"f.json:1:50: disk.lsblkTimeout: 2m0s is more than invokeInterval, 1m0s",
			"f.json:1:74: disk.metricsConfigs: want an object, have a list",
			"f.json:1:113: net.excludeInterfaceRegexp: error parsing regexp: missing closing ): `(`",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := npd.Parse("f.json", []byte(tc.content), npd.Options{Kind: tc.kind})
			if err == nil {
				t.Fatal("no error")
			}
			equal(t, tc.want, strings.Split(err.Error(), "\n"))
		})
	}
}

func TestWhatNPDIgnoresIsAWarning(t *testing.T) {
	f := parse(t, "f.json", `{"plugin": "kmsg", "PLUGIN": "kmsg", "startPattern": "x", "skipList": ["a"], "bufferSize": 500,
"rules": [{"type": "temporary", "condition": "X", "reason": "R", "pattern": "p", "message": null, "taintKey": "k"},]}`)
	var got []string
	for _, w := range f.Warnings {
		got = append(got, w.Error())
	}
	equal(t, []string{
		"f.json:1:20: plugin: is set twice: the last value is used",
		"f.json:1:38: startPattern: unknown key, ignored",
		"f.json:1:71: skipList: is for filelog only: ignored",
		"f.json:1:92: bufferSize: patterns may span at most 100 lines",
		"f.json:2:46: rules[0].condition: a temporary problem sets no condition: ignored",
		"f.json:2:82: rules[0].message: unknown key, ignored",
		"f.json:2:99: rules[0].taintKey: unknown key, ignored",
		"f.json:2:115: trailing comma: node-problem-detector rejects this file",
	}, got)
}

// Disabling the metrics of a monitor has no effect and gives a warning.
func TestMetricsAreOfAllProblems(t *testing.T) {
	for content, want := range map[string]string{
		`{"plugin": "kmsg", "metricsReporting": false}`:   "f.json:1:40: metricsReporting: ignored: problem_counter and problem_gauge report all problems",
		`{"plugin": "custom", "metricsReporting": false}`: "f.json:1:42: metricsReporting: ignored: problem_counter and problem_gauge report all problems",
		`{"plugin": "kmsg", "metricsReporting": true}`:    "",
	} {
		equal(t, want, parse(t, "f.json", content).Warnings.Error())
	}
}

// TestDefaults checks that the defaults are node-problem-detector's own.
func TestDefaults(t *testing.T) {
	log := parse(t, "log.json", `{"plugin": "kmsg"}`).Log
	equal(t, npd.LogMonitor{LogSource: npd.LogSource{Plugin: "kmsg", Path: "/dev/kmsg"}, BufferSize: 10}, *log)
	checks := parse(t, "checks.json", `{"plugin": "custom", "rules": [{"type": "temporary", "reason": "R", "path": "/bin/true"}]}`).Checks
	equal(t, npd.CheckMonitor{
		InvokeInterval: 30 * time.Second, Timeout: 5 * time.Second, MaxOutputLength: 80, Concurrency: 3,
		Rules: []npd.CheckRule{{Rule: npd.Rule{Type: "temporary", Reason: "R", Line: 1}, Path: "/bin/true", Timeout: 5 * time.Second, InvokeInterval: 30 * time.Second}},
	}, *checks)
	stats := parse(t, "stats.json", `{"cpu": {"metricsConfigs": {"cpu/load_1m": {"displayName": "cpu/load_1m"}, "cpu/load_5m": {}}}}`).Stats
	equal(t, npd.StatsMonitor{
		InvokeInterval: time.Minute, ProcPath: "/proc", KnownModulesConfigPath: "guestosconfig/known-modules.json",
		Metrics: map[string]map[string]string{"cpu": {"cpu/load_1m": "cpu/load_1m"}},
	}, *stats)
}

// TestProgramsOnDisk checks that a check program must exist, except NPD's own, which
// are Kernosis commands.
func TestProgramsOnDisk(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "check.sh")
	noError(t, os.WriteFile(there, []byte("#!/bin/sh\n"), 0o755)) //nolint:gosec // a program
	write := func(path string) string {
		name := filepath.Join(dir, "f.json")
		noError(t, os.WriteFile(name, []byte(checkHead+`"rules": [{"type": "temporary", "reason": "R", "path": "`+path+`"}]}`), 0o600))
		return name
	}
	f, err := npd.LoadFile(write(there), npd.Options{Kind: npd.CustomPlugin})
	noError(t, err)
	equal(t, "", f.Checks.Rules[0].Builtin)
	f, err = npd.LoadFile(write("/home/kubernetes/bin/health-checker"), npd.Options{})
	noError(t, err)
	equal(t, "health-checker", f.Checks.Rules[0].Builtin)
	if _, err = npd.LoadFile(write(there+"x"), npd.Options{}); err == nil || !strings.Contains(err.Error(), "rules[0].path: "+there+"x does not exist") {
		t.Error(err)
	}
	if _, err = npd.LoadFile(filepath.Join(dir, "none.json"), npd.Options{}); err == nil || !strings.HasSuffix(err.Error(), "none.json: read: no such file or directory") {
		t.Error(err)
	}
	big := filepath.Join(dir, "big.json")
	noError(t, os.WriteFile(big, make([]byte, npd.MaxFile+100), 0o600))
	if _, err = npd.LoadFile(big, npd.Options{}); err == nil || !strings.HasSuffix(err.Error(), "file has more than 1048576 bytes") {
		t.Error(err)
	}
}

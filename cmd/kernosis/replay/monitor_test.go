package replay_test

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/replay"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
	"github.com/kernosis/kernosis/detector/problem"
)

// monitored returns the configuration of a replay with rules and monitors that override them. Each
// monitor is a file's name and text, separated by \x00.
func monitored(t testing.TB, layers []fs.FS, monitors ...string) replay.Config {
	t.Helper()
	var files []*npd.File
	for _, m := range monitors {
		name, text, _ := strings.Cut(m, "\x00")
		f, err := npd.Parse(name, []byte(text), npd.Options{Kind: npd.SystemLog})
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	under, err := detector.Load(layers...)
	if err != nil {
		t.Fatal(err)
	}
	var cfg replay.Config
	if cfg.Monitors, err = replay.NewMonitors(files, under); err != nil {
		t.Fatal(err)
	}
	if cfg.Rules, err = detector.Load(append(layers, cfg.Monitors.Rules)...); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// lateNovember is when the files were last written.
var lateNovember = time.Date(2026, time.November, 24, 0, 0, 0, 0, time.UTC)

// TestMonitorsChooseLines: a monitor reads the same lines of a log as in node-problem-detector.
func TestMonitorsChooseLines(t *testing.T) {
	monitor := func(name, source string) string {
		return name + "\x00{" + source + `, "bufferSize": 10, "source": "m", "conditions": [], "rules": [
			{"type": "temporary", "reason": "TaskHung", "pattern": "task \\S+:\\w+ blocked for more than \\w+ seconds\\."}]}`
	}
	kernel := monitor("kernel-monitor.json", `"plugin": "kmsg", "logPath": "/dev/kmsg", "lookback": "5m", "delay": "2m"`)
	kernelJournal := monitor("kernel-journal.json", `"plugin": "journald", "pluginConfig": {"source": "kernel"}`)
	docker := monitor("docker-monitor.json", `"plugin": "journald", "pluginConfig": {"source": "dockerd"}`)
	systemd := monitor("systemd-monitor.json", `"plugin": "journald", "pluginConfig": {"source": "systemd"}`)
	kernLog := monitor("kernel-monitor-filelog.json", filelog+`"skipList": [" audit:", "task skipped"],
		"pluginConfig": {"timestamp": "^.{15}", "message": "kernel: \\[.*\\] (.*)", "timestampFormat": "Jan _2 15:04:05"}`)
	dockerLog := monitor("docker-monitor-filelog.json", filelog+`
		"pluginConfig": {"timestamp": "^time=\"(\\S*)\"", "message": "msg=\"([^\n]*)\"", "timestampFormat": "2006-01-02T15:04:05.999999999-07:00"}`)

	const words = " blocked for more than 120 seconds.\n"
	entry := func(fields string) string {
		return "__CURSOR=s=a;i=1\n__REALTIME_TIMESTAMP=1767362645000001\n" + fields + words + "\n"
	}
	export := entry("_TRANSPORT=kernel\nSYSLOG_IDENTIFIER=kernel\nSYSLOG_FACILITY=0\nMESSAGE=INFO: task kern:1") +
		entry("_TRANSPORT=kernel\nSYSLOG_IDENTIFIER=tester\nSYSLOG_FACILITY=1\nMESSAGE=task echo:2") +
		entry("_TRANSPORT=stdout\n_SYSTEMD_UNIT=docker.service\nSYSLOG_IDENTIFIER=dockerd\nMESSAGE=task dockerd:3") +
		entry("_TRANSPORT=journal\n_SYSTEMD_UNIT=docker.service\n_COMM=dockerd\nMESSAGE=task unnamed:4") +
		entry("_TRANSPORT=stdout\n_SYSTEMD_UNIT=evil.service\nSYSLOG_IDENTIFIER=kernel\nMESSAGE=task evil:5")
	var json strings.Builder
	for i, id := range []string{"kernel", "dockerd"} {
		transport := []string{"kernel", "stdout"}[i]
		fmt.Fprintf(&json, `{"__REALTIME_TIMESTAMP":"176736264500000%d","_TRANSPORT":%q,"SYSLOG_IDENTIFIER":%q,"MESSAGE":"task %s:1%s"}`+"\n",
			i, transport, id, id, strings.TrimSpace(words[:len(words)-1]))
	}
	jsonText := strings.ReplaceAll(json.String(), ":1blocked", ":1 blocked")
	messages := "Nov 23 22:31:00 node kernel: [  123.456789] INFO: task kern:1" + words +
		"Nov 23 22:31:01 node kernel: [  124.456789] INFO: task skipped:1" + words +
		"Nov 23 22:31:02 node dockerd[12]: task dockerd:3" + words +
		"Nov 23 22:31:03 node systemd[1]: task systemd:4" + words +
		"2026-11-23T22:31:04.000000+00:00 node kernel: [  125.456789] INFO: task iso:5" + words
	dmesg := "[    1.000000] INFO: task kern:1" + words
	kmsg := "6,1,1000000,-;INFO: task kern:1" + words + "14,2,2000000,-;systemd[1]: task systemd:2" + words
	dockerd := `time="2026-11-23T22:31:00.5+01:00" level=error msg="task dockerd:3` + words[:len(words)-1] + `"` + "\n" +
		`time="yesterday" level=error msg="task late:4` + words[:len(words)-1] + `"` + "\n" +
		`time="2026-11-23T22:31:05.5+01:00" level=error msg="fine"` + "\n"

	for name, tt := range map[string]struct {
		input   string
		monitor string // several are separated by \x01
		tasks   []string
		note    string
	}{
		"kmsg, export":             {export, kernel, []string{"kern:1", "echo:2"}, "kernel-monitor.json: lookback, delay: ignored"},
		"source kernel, export":    {export, kernelJournal, []string{"kern:1", "evil:5"}, ""},
		"source dockerd, export":   {export, docker, []string{"dockerd:3"}, ""},
		"source systemd, export":   {export, systemd, nil, `journald, source "systemd": the input has no line`},
		"filelog, export":          {export, kernLog, []string{"kern:1", "echo:2", "dockerd:3", "unnamed:4", "evil:5"}, `filelog "/var/log/x.log": timestamp, message and timestampFormat: ignored`},
		"kmsg, json":               {jsonText, kernel, []string{"kernel:1"}, ""},
		"source dockerd, json":     {jsonText, docker, []string{"dockerd:1"}, ""},
		"kmsg, messages":           {messages, kernel, []string{"kern:1", "skipped:1", "iso:5"}, ""},
		"source dockerd, messages": {messages, docker, []string{"dockerd:3"}, ""},
		"source kernel, messages":  {messages, kernelJournal, []string{"kern:1", "skipped:1", "iso:5"}, ""},
		"filelog, messages":        {messages, kernLog, []string{"kern:1"}, `filelog "/var/log/x.log": 1 line`},
		"other filelog, messages":  {messages, dockerLog, nil, `filelog "/var/log/x.log": no line of the input matches message`},
		"kmsg, dmesg":              {dmesg, kernel, []string{"kern:1"}, ""},
		"source kernel, dmesg":     {dmesg, kernelJournal, []string{"kern:1"}, ""},
		"source dockerd, dmesg":    {dmesg, docker, nil, `journald, source "dockerd": no line`},
		"kmsg, kmsg":               {kmsg, kernel, []string{"kern:1", "systemd:2"}, ""},
		"source kernel, kmsg":      {kmsg, kernelJournal, []string{"kern:1"}, ""},
		"source systemd, kmsg":     {kmsg, systemd, []string{"systemd:2"}, ""},
		"filelog, its file":        {dockerd, dockerLog, []string{"dockerd:3"}, "input:2: "},
		"kmsg, a file":             {dockerd, dockerLog + "\x01" + kernel, []string{"dockerd:3"}, "kmsg: no line"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := monitored(t, nil, strings.Split(tt.monitor, "\x01")...)
			var out, notes strings.Builder
			cfg.Note = func(note string) { fmt.Fprintln(&notes, note) }
			cfg.Bad = func(file string, line int, err error) { fmt.Fprintf(&notes, "%s:%d: %v\n", file, line, err) }
			w := replay.NewText(&out, false)
			cfg.Step = w.Step
			for _, note := range cfg.Monitors.Notes {
				cfg.Note(note)
			}
			r := replay.New(cfg)
			if err := r.File("input", lateNovember, strings.NewReader(tt.input)); err != nil {
				t.Fatal(err)
			}
			if _, err := r.End(); err != nil {
				t.Fatal(err)
			}
			var tasks []string
			for line := range strings.Lines(out.String()) {
				if _, text, ok := strings.Cut(line, " TaskHung "); ok && !strings.HasPrefix(line, "still there") {
					_, text, _ = strings.Cut(text, "task ")
					task, _, _ := strings.Cut(text, " ")
					tasks = append(tasks, task)
				}
			}
			if !slices.Equal(tasks, tt.tasks) || !strings.Contains(notes.String(), tt.note) {
				t.Errorf("tasks %q, want %q; want the note %q:\n%s%s", tasks, tt.tasks, tt.note, notes.String(), out.String())
			}
		})
	}
}

// filelog is the plugin and path of those monitors.
const filelog = `"plugin": "filelog", "logPath": "/var/log/x.log", `

const oomMonitor = "kernel-monitor.json\x00" + `{"plugin": "kmsg", "source": "kernel-monitor", "conditions": [], "rules": [
	{"type": "temporary", "reason": "Killed", "pattern": "Killed process \\d+.*"}]}`

const dockerMonitor = "docker-monitor.json\x00" + `{"plugin": "journald", "pluginConfig": {"source": "dockerd"}, "source": "docker-monitor",
	"conditions": [{"type": "Corrupt", "reason": "Fine", "message": "fine"}],
	"rules": [{"type": "permanent", "condition": "Corrupt", "reason": "CorruptImage", "pattern": "corrupt"}]}`

// TestMonitorsBesideRules: a line that monitors read is one event for rules, and a line that they
// don't read still reaches the rules for the log itself.
func TestMonitorsBesideRules(t *testing.T) {
	layer := fstest.MapFS{"r.yaml": &fstest.MapFile{Data: []byte(`apiVersion: rules.kernosis.io/v1
rules:
- {name: kernel-oom, events: [log], logs: [kernel], pattern: '^Killed process', reason: OOM, message: "${log.name}"}
- {name: any, events: [log], pattern: 'Killed process', reason: Any, message: "${log.name}"}
- {name: own, events: [log], logs: [journald], pattern: 'Killed process 3', reason: Own, message: "${log.name}"}
`)}}
	cfg := monitored(t, []fs.FS{layer}, oomMonitor, dockerMonitor)
	fired := map[string]int{}
	var unknown bool
	cfg.Step = func(s *replay.Step) error {
		for _, tr := range s.Transitions {
			if tr.Problem != nil {
				fired[tr.Problem.Reason] = int(tr.Problem.Count)
			}
			unknown = unknown || tr.Condition != nil && tr.Condition.Status == problem.Unknown
		}
		return nil
	}
	r := replay.New(cfg)
	entry := func(fields string) string {
		return "__CURSOR=s=a;i=1\n__REALTIME_TIMESTAMP=1767362645000001\n" + fields + "\n\n"
	}
	if err := r.File("input", lateNovember, strings.NewReader(
		entry("_TRANSPORT=kernel\nSYSLOG_IDENTIFIER=kernel\nMESSAGE=Killed process 1 (a)")+
			entry("_TRANSPORT=kernel\nSYSLOG_IDENTIFIER=kernel\nMESSAGE=Killed process 2 (b)")+
			entry("_TRANSPORT=stdout\nSYSLOG_IDENTIFIER=app\nMESSAGE=Killed process 3 (c)"))); err != nil {
		t.Fatal(err)
	}
	sum, err := r.End()
	if want := map[string]int{"OOM": 2, "Any": 3, "Own": 1, "Killed": 2}; err != nil || sum.Events != 3 || !maps.Equal(fired, want) || unknown {
		t.Errorf("%d events, %v, %v; want 3, %v", sum.Events, fired, err, want)
	}
}

// TestMonitorsKeepTheirLinesTogether: a match over several lines is not interrupted by lines that the
// monitor doesn't read.
func TestMonitorsKeepTheirLinesTogether(t *testing.T) {
	const rules = `"bufferSize": 5, "rules": [{"type": "temporary", "reason": "Two", "pattern": "first\\nsecond"}]}`
	for name, monitor := range map[string]string{
		"kmsg":    `{"plugin": "kmsg", ` + rules,
		"source":  `{"plugin": "journald", "pluginConfig": {"source": "kernel"}, ` + rules,
		"filelog": "{" + filelog + `"pluginConfig": {"timestamp": "^.{15}", "message": "kernel: \\[.*\\] (.*)", "timestampFormat": "Jan _2 15:04:05"}, ` + rules,
	} {
		r := replay.New(monitored(t, nil, "m.json\x00"+monitor))
		if err := r.File("input", lateNovember, strings.NewReader("Nov 23 22:31:00 node kernel: [  123.000001] first\n"+
			"Nov 23 22:31:00 node app[1]: between\nNov 23 22:31:00 node kernel: [  123.000002] second\n")); err != nil {
			t.Fatal(err)
		}
		if sum, err := r.End(); err != nil || sum.Firing != 1 {
			t.Errorf("%s: fired %d times, %v; want once", name, sum.Firing, err)
		}
	}
}

// TestMonitorsThatReadNothing: a condition is Unknown if the input can't have the monitor's lines.
func TestMonitorsThatReadNothing(t *testing.T) {
	for input, want := range map[string]problem.Status{
		"[    1.000000] text\n":                    problem.Unknown,
		"Nov 23 22:31:02 node dockerd[12]: text\n": problem.False,
	} {
		r := replay.New(monitored(t, nil, dockerMonitor))
		if err := r.File("input", lateNovember, strings.NewReader(input)); err != nil {
			t.Fatal(err)
		}
		sum, err := r.End()
		if err != nil || len(sum.Conditions) != 1 || sum.Conditions[0].Status != want {
			t.Errorf("%q: %+v, %v; want %s", input, sum.Conditions, err, want)
		}
	}
}

// TestMonitorOfNoTime: the time layout is checked before anything is read.
func TestMonitorOfNoTime(t *testing.T) {
	f, err := npd.Parse("m.json", []byte(`{"plugin": "filelog", "logPath": "/var/log/x", "rules": [],
		"pluginConfig": {"timestamp": "^.{4}", "message": ".*", "timestampFormat": "time"}}`), npd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replay.NewMonitors([]*npd.File{f}, nil); err == nil || !strings.Contains(err.Error(), `filelog "/var/log/x": pluginConfig: timestampFormat: "time"`) {
		t.Error(err)
	}
}

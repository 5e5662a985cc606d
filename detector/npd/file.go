package npd

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	files "github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/detector"
)

// Kind is the part of NPD that a file configures.
type Kind string

// Kinds of files. Those after SystemStats are recognized but not read.
const (
	SystemLog    Kind = "system-log-monitor"
	CustomPlugin Kind = "custom-plugin-monitor"
	SystemStats  Kind = "system-stats-monitor"
	Exporter     Kind = "exporter.stackdriver"
	KnownModules Kind = "known-modules"
)

// File is one configuration with NPD's defaults filled in. It is plain data.
type File struct {
	Name     string // as given
	Kind     Kind
	Log      *LogMonitor   // if Kind is SystemLog
	Checks   *CheckMonitor // if Kind is CustomPlugin
	Stats    *StatsMonitor // if Kind is SystemStats
	Warnings detector.Errors
	// Skipped is the reason why the file is not used: it is for Windows, or
	// configures something that Kernosis doesn't have. Empty: the file is used.
	Skipped string
}

// Condition is a node condition's state while nothing is wrong.
type Condition struct {
	Type    string
	Reason  string
	Message string
	Line    int
}

// Rule holds the fields that rules of both kinds of monitors have.
type Rule struct {
	Type      string // "temporary" or "permanent"
	Condition string // of a permanent problem
	Reason    string
	Line      int
}

// Permanent reports whether the rule sets a condition.
func (r *Rule) Permanent() bool { return r.Type == permanent }

const (
	temporary = "temporary"
	permanent = "permanent"
)

// Options configures how files are read. Agents use the zero value.
type Options struct {
	// Kind is the kind that the file must have; empty: any.
	Kind Kind
	// AnyProgram means that check programs need not exist here: the file is another machine's.
	AnyProgram bool
}

// LoadFile reads a file. The error is a [detector.Errors] with all mistakes.
func LoadFile(path string, opts Options) (*File, error) {
	data, err := files.ReadAtMost(path, MaxFile+1)
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		err = pe.Err
	}
	if err != nil {
		return nil, detector.Errors{{File: path, Msg: "read: " + err.Error()}}
	}
	return Parse(path, data, opts)
}

// Parse reads the content of a file. The error is a [detector.Errors] with all
// mistakes. Warnings are in the File, so they are lost on an error.
func Parse(name string, data []byte, opts Options) (*File, error) {
	if len(data) > MaxFile {
		return nil, detector.Errors{{File: name, Msg: fmt.Sprintf("file has more than %d bytes", MaxFile)}}
	}
	d := &document{name: name, data: data}
	root, offset, err := parseJSON(data, func(at int, msg string) { d.warnf(at, "", "%s", msg) })
	if err != nil {
		return nil, detector.Errors{d.at(offset, "", err.Error())}
	}
	f := &File{Name: name, Kind: kindOf(root)}
	switch {
	case opts.Kind != "" && f.Kind != opts.Kind && (f.Kind == Exporter || f.Kind == KnownModules || len(root.members) > 0):
		d.errorf(root.offset, "", "this is not a configuration of %s%s", opts.Kind, looksLike(f.Kind))
	case opts.Kind != "" || f.Kind != "":
		if f.Kind == "" {
			f.Kind = opts.Kind
		}
		d.fill(f, root, opts)
	default:
		d.unknown(root)
	}
	if len(d.mistakes) > 0 {
		d.mistakes.Sort()
		return nil, d.mistakes
	}
	d.warnings.Sort()
	f.Warnings = d.warnings
	return f, nil
}

// fill reads the content of the file according to its kind.
func (d *document) fill(f *File, root *node, opts Options) {
	windows := strings.HasPrefix(filepath.Base(f.Name), "windows-") || forWindows(root)
	switch f.Kind {
	case SystemLog:
		f.Log = d.systemLog(root)
	case CustomPlugin:
		f.Checks = d.customPlugin(root, opts.AnyProgram || windows)
	case SystemStats:
		f.Stats = d.systemStats(root)
	case Exporter:
		f.Skipped = "it configures Stackdriver, to which Kernosis can't export"
	case KnownModules:
		f.Skipped = "it is a list of kernel modules, read only if osFeature.knownModulesConfigPath names it"
	}
	if windows {
		f.Skipped = "it is for Windows"
	}
}

func looksLike(k Kind) string {
	if k == "" {
		return ""
	}
	return " but of " + string(k)
}

// kindOf returns the kind of the file by its content, or "" if it can't be recognized.
func kindOf(root *node) Kind {
	if root.kind == list {
		for _, item := range root.items {
			if item.member("moduleName") == nil {
				return ""
			}
		}
		return KnownModules
	}
	if plugin := root.member("plugin"); plugin != nil {
		if plugin.text == "custom" {
			return CustomPlugin
		}
		return SystemLog
	}
	for _, key := range []string{"cpu", "disk", "host", "memory", "osFeature", "net", "invokeInterval", "procPath"} {
		if root.member(key) != nil {
			return SystemStats
		}
	}
	for _, key := range []string{"apiEndpoint", "exportPeriod", "panicOnMetadataFetchFailure"} {
		if root.member(key) != nil {
			return Exporter
		}
	}
	return ""
}

func (d *document) unknown(root *node) {
	if root.kind == object && (root.member("rules") != nil || root.member("logPath") != nil) {
		d.errorf(root.offset, "plugin", `is missing: want kmsg, journald, filelog or custom`)
		return
	}
	d.errorf(root.offset, "", "this is not a configuration of node-problem-detector: it has neither a plugin nor statistics")
}

// member returns the value of an object's key, ignoring the case of the key, or nil.
func (n *node) member(key string) *node {
	for _, m := range slices.Backward(n.members) {
		if strings.EqualFold(m.name, key) && m.value.kind != null {
			return m.value
		}
	}
	return nil
}

// forWindows reports whether the file contains a Windows path.
func forWindows(root *node) bool {
	paths := []*node{root.member("logPath")}
	if rules := root.member("rules"); rules != nil {
		for _, r := range rules.items {
			paths = append(paths, r.member("path"))
		}
	}
	for _, p := range paths {
		if p == nil || p.kind != text {
			continue
		}
		s := p.text
		if len(s) > 2 && s[1] == ':' && (s[2] == '\\' || s[2] == '/') || strings.HasSuffix(s, ".ps1") || strings.HasSuffix(s, ".exe") {
			return true
		}
	}
	return false
}

// conditions reads the default states, one for each type.
func (d *document) conditions(top *reader) []Condition {
	var out []Condition
	seen := make(map[string]int)
	for i, n := range top.items("conditions", maxConditions) {
		r := d.read(n, fmt.Sprintf("conditions[%d]", i), "type", "reason", "message")
		c := Condition{
			Type:    r.required("type", ""),
			Reason:  r.required("reason", ": want the reason while nothing is wrong"),
			Message: r.text("message", ""),
			Line:    d.at(n.offset, "", "").Line,
		}
		r.checkConditionType("type", c.Type)
		r.checkReason("reason", c.Reason)
		if len(c.Message) > detector.MaxMessage {
			r.errorf("message", "has %d bytes, at most %d are allowed", len(c.Message), detector.MaxMessage)
		}
		if first, ok := seen[c.Type]; ok && c.Type != "" {
			r.errorf("type", "condition %s is listed twice, first at conditions[%d]", c.Type, first)
			continue
		}
		seen[c.Type] = i
		out = append(out, c)
	}
	return out
}

// maxConditions bounds the condition types of a file.
const maxConditions = 100

// rule reads the keys that rules of both kinds of monitors have.
func (r *reader) rule(conditions []Condition) Rule {
	out := Rule{Type: r.required("type", ": want temporary or permanent"), Condition: r.text("condition", ""), Reason: r.required("reason", "")}
	out.Line = r.d.at(r.offset, "", "").Line
	r.checkReason("reason", out.Reason)
	switch out.Type {
	case "":
	case temporary:
		if out.Condition != "" {
			r.warnf("condition", "a temporary problem sets no condition: ignored")
			out.Condition = ""
		}
	case permanent:
		if out.Condition == "" {
			r.errorf("condition", "is missing: a permanent problem needs one")
		} else if !slices.ContainsFunc(conditions, func(c Condition) bool { return c.Type == out.Condition }) {
			r.errorf("condition", "condition %s has no default under conditions", shown(out.Condition))
		}
	default:
		r.errorf("type", "want temporary or permanent, have %s", shown(out.Type))
	}
	return out
}

// metricsReporting warns if a file disables the metrics of its problems.
func (r *reader) metricsReporting() {
	if !r.bool("metricsReporting", true) {
		r.warnf("metricsReporting", "ignored: problem_counter and problem_gauge report all problems")
	}
}

// clearing reads clearAfter, which is a Kernosis extension.
func (r *reader) clearing() (after time.Duration, never bool) {
	if n := r.values["clearAfter"]; n != nil && n.kind == text && n.text == "never" {
		return 0, true
	}
	return r.duration("clearAfter", 0, time.Millisecond), false
}

package event

import (
	"strings"
	"unicode/utf8"

	"github.com/kernosis/kernosis/collector/display"
)

// Log: a line of a log that matches a rule's pattern, with those before it that the pattern spans.
const Log Kind = "log"

// MaxLogText bounds LogData.Text, in bytes: the longest line that is matched.
const MaxLogText = 8 << 10

// KernelLogs is the name by which rules refer to every log with the kernel's lines: /dev/kmsg, a
// journal, a file that the configuration declares as the kernel's. No single log has this name.
const KernelLogs = "kernel"

// CrashLog is the log of what the kernels of earlier boots printed before they panicked. It is
// only for rules that name it: today's conditions don't follow from it. It is also the Origin of
// the lines in it that its reader adds.
const CrashLog = "crash"

// Origins of lines from the kernel's log, and of no others, whatever name a writer claims.
const (
	// OriginKernel is the Origin of what the kernel printed, except OriginProcess. The line begins
	// with the kernel's own words, but names of processes, files and devices may follow.
	OriginKernel = "kernel"
	// OriginProcess is the Origin of kernel lines that begin with a name that a process chose for
	// itself or its files, such as the report of its crash. Such a line can say anything, so it is
	// no evidence for a condition.
	OriginProcess = "process"
)

// LogData is the payload of [Log]. All fields except Log come from whoever wrote the line: bounded
// in length, but otherwise untrusted.
type LogData struct {
	Log      string `json:"name"`               // name of the log: kmsg, journald, crash, or the one a file is configured under
	Origin   string `json:"origin,omitempty"`   // who has written it, as far as that is sure: OriginKernel, OriginProcess, facility, path, identifier; of several lines, the last one's
	Unit     string `json:"unit,omitempty"`     // systemd unit of the writer, where the log knows it
	Priority string `json:"priority,omitempty"` // emerg to debug; empty: the log does not say
	// Seq is the number of the line that made the event, the same each time the line is read: of
	// the kernel's record or the journal's entry, or counted by the file's reader; 0: none.
	Seq uint64 `json:"seq,omitempty"`
	// Part is the index of the line in an entry of several lines; 0: the first.
	Part uint32 `json:"part,omitempty"`
	// Stamp is when the kernel printed the line, by its own clock. All copies of a message have it,
	// so that one message in two logs counts once. 0: unknown, or not from the kernel.
	Stamp Duration `json:"stamp,omitempty"`
	// Text is the lines that patterns match, joined by newlines; the last one is
	// the line that made the event. Made by [LogText].
	Text string `json:"text"`
	// Captures are the named groups of one rule's pattern that took part in its
	// match. Sources leave it nil; the engine sets it, and narrows Text to what
	// that pattern matched, in the copies it keeps as a problem's evidence.
	Captures map[string]string `json:"captures,omitempty"`
}

// FromKernel reports whether the kernel printed the line.
func (d *LogData) FromKernel() bool {
	return d.Origin == OriginKernel || d.Origin == OriginProcess
}

// writer returns the writer of the line, or the log if the writer is unknown.
func (d *LogData) writer() string {
	switch {
	case d.Unit != "":
		return "unit " + d.Unit
	case d.Origin == OriginProcess:
		return OriginKernel
	case d.Origin != "":
		return d.Origin
	}
	return d.Log
}

// LogText returns the Text of a LogData for lines joined by newlines: at most MaxLogText bytes,
// without a newline at the end. If there is more, it drops the first lines, since patterns match at
// the end; it cuts the end of a single line. Bytes that are not UTF-8 become U+FFFD, as in regular
// expressions and JSON, so that a replay sees the same text.
func LogText(lines string) string {
	if !utf8.ValidString(lines) {
		lines = string([]rune(lines)) // not strings.ToValidUTF8: that replaces several bytes by one
	}
	lines = strings.TrimSuffix(lines, "\n")
	if len(lines) <= MaxLogText {
		return lines
	}
	if last := lines[strings.LastIndexByte(lines, '\n')+1:]; len(last) > MaxLogText {
		return display.Prefix(last, MaxLogText)
	}
	cut := len(lines) - MaxLogText - 1 // includes the byte before: if it ends a line, the rest is whole lines
	return lines[cut+strings.IndexByte(lines[cut:], '\n')+1:]
}

func (d *LogData) facts(_ *Event, f *Facts) {
	f.add("%s: %s", d.Log, d.Text[strings.LastIndexByte(d.Text, '\n')+1:])
}

func logFields() []*Field {
	field := fieldsOf("log.", func(e *Event) *LogData { return e.Log }, Log)
	return []*Field{
		few(field("name", TypeString, "kmsg, journald, crash, or the configured name", func(d *LogData) Value { return text(d.Log) })),
		field("origin", TypeString, "writer, as far as certain: kernel, process (a crash line of the kernel), facility, path, identifier; of several lines, the last one's", func(d *LogData) Value { return text(d.Origin) }),
		field("unit", TypeString, "the writer's systemd unit", func(d *LogData) Value { return text(d.Unit) }),
		few(field("priority", TypeString, "emerg, alert, crit, err, warning, notice, info, debug", func(d *LogData) Value { return text(d.Priority) })),
		field("text", TypeString, "whole lines that the pattern matched", func(d *LogData) Value { return text(d.Text) }),
	}
}

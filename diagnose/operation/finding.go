package operation

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

const (
	// MaxShown bounds the text of one result of the node's built-ins: all of one
	// operation together then stay below the 8 KiB a Diagnosis keeps of it.
	MaxShown = 512
	// maxNote bounds the note on what was not looked at.
	maxNote = 1024
	// MaxLogLine is more than the kernel prints in a line (1 KiB), escapes apart.
	MaxLogLine = 2 << 10
)

// NoteResult is the result by which the node's built-ins say what they could not
// look at or keep.
func NoteResult() Result {
	return Result{"note", "what could not be inspected or was left out, and why"}
}

// Finding gathers the results of one run. Values that nobody knows are left out.
type Finding struct {
	Results map[string]string
	Notes   []string // what could not be done: the result "note"
	Shown   int      // most bytes of a text
}

// NewFinding returns one without results, whose texts have at most [MaxShown] bytes.
func NewFinding() *Finding { return &Finding{Results: map[string]string{}, Shown: MaxShown} }

// Text sets a result, made fit to be shown; an empty one is left out.
func (f *Finding) Text(name, value string) {
	if value != "" {
		f.Results[name] = display.Safe(value, f.Shown)
	}
}

// Int sets a result.
func (f *Finding) Int(name string, n int64) { f.Results[name] = strconv.FormatInt(n, 10) }

// Uint sets a result.
func (f *Finding) Uint(name string, n uint64) { f.Results[name] = strconv.FormatUint(n, 10) }

// Float sets a result with two decimals.
func (f *Finding) Float(name string, n float64) {
	f.Results[name] = strconv.FormatFloat(n, 'f', 2, 64)
}

// Bool sets a result.
func (f *Finding) Bool(name string, b bool) { f.Results[name] = strconv.FormatBool(b) }

// Duration sets a result to the millisecond.
func (f *Finding) Duration(name string, d time.Duration) {
	f.Results[name] = d.Round(time.Millisecond).String()
}

// Note adds what could not be done; equal notes are kept once.
func (f *Finding) Note(format string, args ...any) {
	s := display.Safe(fmt.Sprintf(format, args...), MaxShown)
	if !slices.Contains(f.Notes, s) {
		f.Notes = append(f.Notes, s)
	}
}

// Output ends the finding.
func (f *Finding) Output(v *Verdict) Output {
	if len(f.Notes) > 0 {
		f.Results["note"] = display.Safe(strings.Join(f.Notes, "; "), maxNote)
	}
	return Output{Results: f.Results, Verdict: v}
}

// Page is an artifact that is being written. [Finding.Artifact] returns what goes wrong.
type Page struct{ io.Writer }

// Printf writes a formatted text.
func (p *Page) Printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p, format, args...) // the writer keeps its first error
}

// Artifact writes a file of the running node. One that does not fit the disk budget
// is cut, and noted: the results are worth having without it.
func (f *Finding) Artifact(call *Call, name string, write func(w *Page)) error {
	if call.Artifacts == nil {
		f.Note("%s was not kept: no artifacts are taken here", name)
		return nil
	}
	file, err := call.Artifacts.Create(name)
	if err == nil {
		w := bufio.NewWriter(file)
		write(&Page{w})
		err = errors.Join(w.Flush(), file.Close())
	}
	switch {
	case errors.Is(err, ErrArtifactBudget):
		f.Note("%s is cut: %v", name, ErrArtifactBudget)
		return nil
	case err != nil:
		return fmt.Errorf("write artifact %s: %w", name, err)
	}
	return nil
}

// VerdictOf returns a verdict whose message is made fit to be shown, and bounded.
func VerdictOf(reason, format string, args ...any) *Verdict {
	return &Verdict{Reason: reason, Message: boundMessage(format, args...)}
}

// RefutedBy returns the answer no, its message bounded likewise.
func RefutedBy(reason, format string, args ...any) *Refuted {
	return &Refuted{Reason: reason, Message: boundMessage(format, args...)}
}

func boundMessage(format string, args ...any) string {
	return display.Safe(fmt.Sprintf(format, args...), MaxMessage)
}

// Counts is "disk=3 lock=1", by name.
func Counts[K ~string](counts map[K]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%s=%d", name, counts[name]))
	}
	return strings.Join(out, " ")
}

// AddOnce appends s to a list that does not have it.
func AddOnce(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

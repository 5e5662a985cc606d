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
	// MaxShown bounds the text of one result of the node's built-ins, so that all results of an
	// operation stay below the 8 KiB that a Diagnosis stores of it.
	MaxShown = 512
	// maxNote bounds the note about what could not be inspected.
	maxNote = 1024
	// MaxLogLine is more than a line of the kernel (1 KiB) without escapes.
	MaxLogLine = 2 << 10
)

// NoteResult returns the result in which the node's built-ins report what they could not inspect or
// keep.
func NoteResult() Result {
	return Result{"note", "what could not be inspected or was left out, and why"}
}

// Finding collects the results of one run. Unknown values are left out.
type Finding struct {
	Results map[string]string
	Notes   []string // what could not be done; becomes the result "note"
	Shown   int      // maximum bytes of a text
}

// NewFinding returns an empty Finding, whose texts have at most [MaxShown] bytes.
func NewFinding() *Finding { return &Finding{Results: map[string]string{}, Shown: MaxShown} }

// Text sets a result, made safe to print. It leaves out an empty value.
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

// Duration sets a result, rounded to milliseconds.
func (f *Finding) Duration(name string, d time.Duration) {
	f.Results[name] = d.Round(time.Millisecond).String()
}

// Note adds a note about what could not be done; equal notes are kept once.
func (f *Finding) Note(format string, args ...any) {
	s := display.Safe(fmt.Sprintf(format, args...), MaxShown)
	if !slices.Contains(f.Notes, s) {
		f.Notes = append(f.Notes, s)
	}
}

// Output returns the results, with the notes added.
func (f *Finding) Output(v *Verdict) Output {
	if len(f.Notes) > 0 {
		f.Results["note"] = display.Safe(strings.Join(f.Notes, "; "), maxNote)
	}
	return Output{Results: f.Results, Verdict: v}
}

// Page is an artifact that is being written. [Finding.Artifact] returns its write errors.
type Page struct{ io.Writer }

// Printf writes formatted text.
func (p *Page) Printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p, format, args...) // the writer keeps its first error
}

// Artifact writes a file of the running node. A file that exceeds the disk budget is cut, and this
// is noted: the results are useful without it.
func (f *Finding) Artifact(call *Call, name string, write func(w *Page)) error {
	if call.Artifacts == nil {
		f.Note("%s was not kept: artifacts are not stored here", name)
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
		f.Note("%s is truncated: %v", name, ErrArtifactBudget)
		return nil
	case err != nil:
		return fmt.Errorf("write artifact %s: %w", name, err)
	}
	return nil
}

// VerdictOf returns a verdict with a formatted message, safe to print and bounded.
func VerdictOf(reason, format string, args ...any) *Verdict {
	return &Verdict{Reason: reason, Message: boundMessage(format, args...)}
}

// RefutedBy returns a negative answer with a formatted message, safe to print and bounded.
func RefutedBy(reason, format string, args ...any) *Refuted {
	return &Refuted{Reason: reason, Message: boundMessage(format, args...)}
}

func boundMessage(format string, args ...any) string {
	return display.Safe(fmt.Sprintf(format, args...), MaxMessage)
}

// Counts formats counts by name: "disk=3 lock=1".
func Counts[K ~string](counts map[K]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%s=%d", name, counts[name]))
	}
	return strings.Join(out, " ")
}

// AddOnce appends s to list unless it is in it.
func AddOnce(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

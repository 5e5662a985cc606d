package operation

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

const (
	// maxShown bounds the text of one result of the node's built-ins: all of one
	// operation together then stay below the 8 KiB a Diagnosis keeps of it.
	maxShown = 512
	// maxVerdict bounds a verdict's or refutation's message.
	maxVerdict = 1024
	// maxNote bounds what is told of what was not looked at.
	maxNote = 1024
)

// noteResult is the result by which the node's built-ins say what they could not
// look at or keep.
func noteResult() Result {
	return Result{"note", "what could not be looked at or was left out, and why"}
}

// finding gathers the results of one run. Values that nobody knows are left out.
type finding struct {
	results map[string]string
	notes   []string
	shown   int // bytes of a text
}

func newFinding() *finding { return &finding{results: map[string]string{}, shown: maxShown} }

// text sets a result, made fit to be shown; an empty one is left out.
func (f *finding) text(name, value string) {
	if value != "" {
		f.results[name] = display.Safe(value, f.shown)
	}
}

func (f *finding) int(name string, n int64)   { f.results[name] = strconv.FormatInt(n, 10) }
func (f *finding) uint(name string, n uint64) { f.results[name] = strconv.FormatUint(n, 10) }
func (f *finding) bool(name string, b bool)   { f.results[name] = strconv.FormatBool(b) }

// duration sets a result to the millisecond.
func (f *finding) duration(name string, d time.Duration) {
	f.results[name] = d.Round(time.Millisecond).String()
}

// note adds what could not be done; equal notes are told once.
func (f *finding) note(format string, args ...any) {
	s := display.Safe(fmt.Sprintf(format, args...), maxShown)
	if !slices.Contains(f.notes, s) {
		f.notes = append(f.notes, s)
	}
}

// output ends the finding.
func (f *finding) output(v *Verdict) Output {
	if len(f.notes) > 0 {
		f.results["note"] = display.Safe(strings.Join(f.notes, "; "), maxNote)
	}
	return Output{Results: f.results, Verdict: v}
}

// page is an artifact that is being written. What goes wrong is told at its end.
type page struct{ io.Writer }

func (p *page) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p, format, args...) // the writer keeps its first error
}

// artifact writes a file of the running node. One that does not fit the disk budget
// is cut, and noted: what was found is worth telling without it.
func (f *finding) artifact(call *Call, name string, write func(w *page)) error {
	if call.Artifacts == nil {
		f.note("%s was not kept: no artifacts are taken here", name)
		return nil
	}
	file, err := call.Artifacts.Create(name)
	if err == nil {
		w := bufio.NewWriter(file)
		write(&page{w})
		err = errors.Join(w.Flush(), file.Close())
	}
	switch {
	case errors.Is(err, ErrArtifactBudget):
		f.note("%s is cut: %v", name, ErrArtifactBudget)
		return nil
	case err != nil:
		return fmt.Errorf("write artifact %s: %w", name, err)
	}
	return nil
}

// verdictOf makes one whose message is bounded.
func verdictOf(reason, format string, args ...any) *Verdict {
	return &Verdict{Reason: reason, Message: boundMessage(format, args...)}
}

// refutedBy makes the answer no.
func refutedBy(reason, format string, args ...any) *Refuted {
	return &Refuted{Reason: reason, Message: boundMessage(format, args...)}
}

func boundMessage(format string, args ...any) string {
	return display.Safe(fmt.Sprintf(format, args...), maxVerdict)
}

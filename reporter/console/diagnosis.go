package console

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// Diagnosis describes a Diagnosis that has ended.
type Diagnosis struct {
	ID           string        `json:"id"` // for "kernosis diagnose show"
	Namespace    string        `json:"namespace,omitempty"`
	Name         string        `json:"name"`
	Trigger      string        `json:"trigger,omitempty"` // the trigger that created it
	OperationSet string        `json:"operationSet"`
	Subject      string        `json:"subject,omitempty"`
	Phase        string        `json:"phase"`
	Reason       string        `json:"reason"` // why it ended
	Message      string        `json:"message,omitempty"`
	Verdict      *Cause        `json:"verdict,omitempty"` // nil if no cause was found
	Path         []string      `json:"path,omitempty"`    // operations that led to the verdict
	Excluded     []Cause       `json:"excluded,omitempty"`
	Action       string        `json:"action,omitempty"` // the repair, made or dry-run
	Files        []string      `json:"files,omitempty"`
	After        time.Duration `json:"after,omitempty"` // from the problem's line to the end, in nanoseconds
}

// Cause is a cause as one word and as a sentence.
type Cause struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// diagnosisLine is the JSON line of a Diagnosis, which is not a journal entry.
type diagnosisLine struct {
	Now       time.Time  `json:"now"`
	Diagnosis *Diagnosis `json:"diagnosis"`
}

// Diagnosis implements Writer.
func (j *jsonLines) Diagnosis(now time.Time, d *Diagnosis) error {
	if err := j.enc.Encode(diagnosisLine{now, d}); err != nil {
		return fmt.Errorf("write line: %w", err)
	}
	return nil
}

// Diagnosis implements Writer.
func (t *text) Diagnosis(now time.Time, d *Diagnosis) error {
	fmt.Fprintf(&t.buf, "%s %-8s %-*s ", now.Local().Format("15:04:05.000"), "cause", reasonWidth, d.word())
	switch {
	case d.Verdict != nil:
		t.buf.WriteString(d.Verdict.Message)
	case d.Message != "":
		t.buf.WriteString(d.Message)
	default:
		t.buf.WriteString(d.Reason)
	}
	if len(d.Path) > 0 {
		t.buf.WriteString("; by " + strings.Join(d.Path, " → "))
	}
	if len(d.Excluded) > 0 {
		reasons := make([]string, len(d.Excluded))
		for i := range d.Excluded {
			reasons[i] = d.Excluded[i].Reason
		}
		t.buf.WriteString("; not: " + strings.Join(reasons, ", "))
	}
	if d.Action != "" {
		t.buf.WriteString("; " + d.Action)
	}
	if n := len(d.Files); n > 0 {
		t.buf.WriteString("; " + display.Count(n, "file") + " in " + filepath.Dir(d.Files[0]))
	}
	fmt.Fprintf(&t.buf, " [%s %s]", d.OperationSet, d.Name)
	if d.After > 0 {
		fmt.Fprintf(&t.buf, " (%s)", latency(d.After))
	}
	t.buf.WriteByte('\n')
	return nil
}

// word returns the reason of the verdict or, if there is no verdict, how the Diagnosis ended.
func (d *Diagnosis) word() string {
	switch {
	case d.Verdict != nil:
		return d.Verdict.Reason
	case d.Reason == "NoPathSucceeded":
		return "NoCauseFound"
	}
	return d.Phase
}

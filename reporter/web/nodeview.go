package web

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/docs/problems"
)

const (
	// maxText bounds a displayed text.
	maxText = 1024
	// maxName bounds a displayed name, which is not wrapped.
	maxName = 80
	// maxProblems, maxConditions, maxSources and maxLosses bound the tables.
	maxProblems   = 500
	maxConditions = 200
	maxSources    = 100
	maxLosses     = 100
	maxDiagnoses  = 50
)

func safe(s string) string { return display.Safe(s, maxText) }

// name makes a name, such as a reason, safe to display.
func name(s string) string { return display.Safe(s, maxName) }

// moment is a time as the page displays it.
type moment struct{ time.Time }

// ISO formats the time for the attribute datetime.
func (m moment) ISO() string { return m.UTC().Format("2006-01-02T15:04:05.000Z") }

// Text formats the time for people.
func (m moment) Text() string { return m.UTC().Format(time.DateTime) }

// view is the data of the template. All texts are safe.
type view struct {
	Node, Version, Kernel string
	Started               moment
	Memory, CPU           string // empty if unknown
	Broken                string // why the agent does not work; empty if it does
	Summary               string
	Worst                 string // severity; empty if nothing fires

	Conditions []conditionView
	Problems   []problemView
	More       int // number of problems not shown
	Sources    []Source
	Degraded   []string
	Up         int // number of working sources
	Losses     []Loss

	Timeline      []rowView
	MaxRows       int
	TimelineError string

	Off            bool // Diagnoses are switched off
	Diagnoses      []diagnosisView
	MoreDiagnoses  int
	DiagnosesError string
}

type conditionView struct {
	Type, Status, Word, Reason, Message string
	Since                               moment
}

type problemView struct {
	Key, Rule, Severity, Reason, Subject, Message string
	Since                                         moment
	Count                                         uint64
	Page                                          string // name in docs/problems; empty if there is none
	Note                                          string
}

func (v *view) cost(c Cost, runs time.Duration) {
	if c.RSS > 0 {
		v.Memory = display.Bytes(c.RSS)
	}
	if c.CPU > 0 && runs > 0 {
		v.CPU = strconv.FormatFloat(100*c.CPU.Seconds()/runs.Seconds(), 'f', 2, 64) + " %"
	}
}

func (v *view) conditions(list []problem.Condition) {
	for i := range list[:min(len(list), maxConditions)] {
		c := &list[i]
		word := map[problem.Status]string{problem.True: "bad", problem.False: "good", problem.Unknown: "unknown"}[c.Status]
		v.Conditions = append(v.Conditions, conditionView{
			Type: name(c.Type), Status: name(string(c.Status)), Word: cmp.Or(word, "unknown"), Reason: name(c.Reason), Message: safe(c.Message),
			Since: moment{c.LastTransition},
		})
	}
	order := map[string]int{"bad": 0, "unknown": 1, "good": 2}
	slices.SortStableFunc(v.Conditions, func(a, b conditionView) int { return cmp.Compare(order[a.Word], order[b.Word]) })
}

// problems sets the firing problems: by severity, causes before the problems they explain,
// newest first; muted ones last.
func (v *view) problems(list []problem.Problem) {
	firing := slices.DeleteFunc(slices.Clone(list), func(p problem.Problem) bool { return p.State != problem.Firing })
	slices.SortStableFunc(firing, func(a, b problem.Problem) int {
		return cmp.Or(cmp.Compare(muted(&a), muted(&b)), cmp.Compare(b.Severity.Rank(), a.Severity.Rank()),
			cmp.Compare(explained(&a), explained(&b)), b.Since.Compare(a.Since))
	})
	counts := map[string]int{}
	quiet := 0
	for i := range firing {
		if muted(&firing[i]) > 0 {
			quiet++
		} else {
			counts[severityWord(firing[i].Severity)]++
		}
	}
	for i := range firing[:min(len(firing), maxProblems)] {
		v.Problems = append(v.Problems, problemOf(&firing[i]))
	}
	v.More = len(firing) - len(v.Problems)
	v.Summary = summary(counts, quiet)
	for _, word := range problem.Severities() {
		if counts[string(word)] > 0 {
			v.Worst = string(word)
		}
	}
}

func muted(p *problem.Problem) int {
	if p.MutedUntil.IsZero() {
		return 0
	}
	return 1
}

func explained(p *problem.Problem) int { return min(1, len(p.SuppressedBy)) }

// summary returns a text like "3 problems firing: 1 critical, 2 warning; 1 muted".
func summary(counts map[string]int, quiet int) string {
	all := 0
	var parts []string
	for _, s := range slices.Backward(problem.Severities()) {
		if n := counts[string(s)]; n > 0 {
			all += n
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	out := "No problems are firing"
	if all > 0 {
		out = display.Count(all, "problem") + " firing: " + strings.Join(parts, ", ")
	}
	if quiet > 0 {
		out += fmt.Sprintf("; %d muted", quiet)
	}
	return out
}

func problemOf(p *problem.Problem) problemView {
	v := problemView{
		Key: key(p.Rule, p.Group), Rule: name(p.Rule), Severity: severityWord(p.Severity), Reason: name(p.Reason),
		Subject: safe(p.Subject), Message: safe(p.Message), Since: moment{p.FirstSeen}, Count: p.Count,
	}
	if problems.Has(p.Doc) {
		v.Page = strings.TrimPrefix(p.Doc, problems.Folder)
	}
	var notes []string
	if p.SuppressedBy != "" {
		notes = append(notes, "caused by "+safe(p.SuppressedBy))
	}
	if !p.MutedUntil.IsZero() {
		notes = append(notes, "muted until "+moment{p.MutedUntil}.Text())
	}
	v.Note = strings.Join(notes, ", ")
	return v
}

// key returns an identifier that is valid in an attribute, whatever the parts contain.
func key(parts ...string) string {
	h := fnv.New128a()
	for _, part := range parts {
		_, _ = h.Write([]byte(part + "\x00")) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (v *view) sources(list []Source, degraded []string) {
	for _, s := range list {
		if s.Up && s.Why == "" {
			v.Up++
			continue
		}
		if len(v.Sources) < maxSources {
			v.Sources = append(v.Sources, Source{Name: name(s.Name), Up: s.Up, Why: safe(s.Why)})
		}
	}
	for _, line := range degraded[:min(len(degraded), maxSources)] {
		v.Degraded = append(v.Degraded, safe(line))
	}
}

func (v *view) losses(list []Loss) {
	for _, l := range list[:min(len(list), maxLosses)] {
		v.Losses = append(v.Losses, Loss{What: safe(l.What), Why: safe(l.Why), Count: l.Count})
	}
}

// Diagnosis is a Diagnosis as the page shows it.
type Diagnosis struct {
	ID   string // of the run
	Name string
	// Trigger is what created it; empty if a person did.
	Trigger, OperationSet, Subject string
	Phase                          string
	// Outcome is one word; empty if Cause or Phase says it.
	Outcome        string
	Started, Ended time.Time // Ended is zero while it runs
	// Cause is the verdict. If it is nil, Message says why there is none.
	Cause    *Cause
	Message  string
	Excluded []Cause
	Steps    []Step
	Path     string // the path on which it ended
	Repairs  []string
	Files    []string
	// Graph reports whether the run has a drawing.
	Graph bool
}

// Cause is a cause as one word and as a sentence.
type Cause struct{ Reason, Message string }

// Step is the result of one node of the graph.
type Step struct {
	ID                int
	Operation, Effect string
	// Result is one of: yes, no, done, failed, would run.
	Result, Text string
	Took         time.Duration // 0 if it did not run
	OnPath       bool
}

// maxSteps bounds the steps shown of a run: a graph has at most 256 nodes.
const maxSteps = 256

type diagnosisView struct {
	Diagnosis
	Key        string
	Started    moment
	Took, Word string
	Steps      []stepView
}

type stepView struct {
	Step
	Took string
}

func (v *view) diagnoses(list []Diagnosis, all int) {
	for i := range list[:min(len(list), maxDiagnoses)] {
		v.Diagnoses = append(v.Diagnoses, list[i].view())
	}
	v.MoreDiagnoses = max(0, all-len(v.Diagnoses))
}

// view returns the Diagnosis with all texts made safe.
func (d *Diagnosis) view() diagnosisView {
	out := diagnosisView{Key: key(d.ID), Started: moment{d.Started}, Word: "unknown"}
	out.Diagnosis = Diagnosis{
		ID: d.ID, Name: safe(d.Name), Trigger: safe(d.Trigger), OperationSet: safe(d.OperationSet), Subject: safe(d.Subject), Phase: safe(d.Phase), Outcome: name(d.Outcome),
		Message: safe(d.Message), Path: safe(d.Path), Graph: d.Graph, Ended: d.Ended, Repairs: allSafe(d.Repairs), Files: allSafe(d.Files),
	}
	if d.Cause != nil {
		out.Cause, out.Word = &Cause{name(d.Cause.Reason), safe(d.Cause.Message)}, "found"
	}
	for _, c := range d.Excluded {
		out.Excluded = append(out.Excluded, Cause{safe(c.Reason), safe(c.Message)})
	}
	if !d.Started.IsZero() && !d.Ended.IsZero() {
		out.Took = display.Duration(d.Ended.Sub(d.Started))
	}
	for _, s := range d.Steps[:min(len(d.Steps), maxSteps)] {
		s.Operation, s.Effect, s.Result, s.Text = safe(s.Operation), safe(s.Effect), safe(s.Result), safe(s.Text)
		took := ""
		if s.Took > 0 {
			took = display.Duration(s.Took)
		}
		out.Steps = append(out.Steps, stepView{s, took})
	}
	return out
}

func allSafe(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list[:min(len(list), maxSteps)] {
		out = append(out, safe(s))
	}
	return out
}

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/diagnose/why"
	whycluster "github.com/kernosis/kernosis/diagnose/why/cluster"
	"github.com/kernosis/kernosis/diagnose/why/local"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/events"
)

// errNoJournal: this machine has no journal, or the journal is of another node than the requested one.
var errNoJournal = errors.New("this machine has no journal of that node") //nolint:gochecknoglobals // a constant

// deadAfter is the age of the saved state above which no agent runs: the state is saved every 30 s.
const deadAfter = 3 * agent.SaveEvery

// local reads the journal, and the Diagnoses in its state folder. The error is errNoJournal if there
// is none to read. known says whether the API server knows the subject. step is as in [local.Read].
func (f *whyFlags) local(s why.Subject, now time.Time, known bool, step func() error) (*why.Input, error) {
	if f.journal == "" && f.kube.asked() {
		return nil, errNoJournal
	}
	state, dir := f.journalDirs()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if f.journal != "" {
			return nil, fmt.Errorf("no journal in %s", f.journal)
		}
		return nil, errNoJournal
	} else if err != nil {
		return nil, err
	}
	here, node := journalNode(state), s.Node
	if s.Kind == why.KindNode {
		node = cmp.Or(node, s.Name)
	}
	if f.journal == "" && node != "" && here != "" && node != here {
		return nil, errNoJournal
	}
	if s.Kind == why.KindNode && s.Name == "" {
		s.Name = cmp.Or(here, "localhost")
	}
	switch {
	case s.Kind != why.KindPod || s.Namespace != "":
	case looksLikeUID(s.Name):
		s.UID = s.Name
	default:
		s.Namespace = f.kube.namespace()
	}
	in, err := local.Read(local.Config{Dir: dir, Subject: s, Now: now, Since: f.since}, step)
	switch {
	case errors.Is(err, local.ErrUnknownPod) && !known:
		in.Unread = append(in.Unread, why.Unread{
			What: "which UID " + s.String() + " has", Needed: true,
			Why: local.ErrUnknownPod.Error() + ": it has the names of pods only if their probes failed; give the UID, or a kubeconfig",
		})
	case err != nil && !errors.Is(err, local.ErrUnknownPod):
		return nil, err
	}
	if state != "" {
		if err := alive(&in, state, now); err != nil {
			return nil, err
		}
		savedDiagnoses(&in, state, f.agentNamespaces)
	}
	return &in, nil
}

// looksLikeUID reports whether a name has the form of a UID, which pod names hardly ever have.
func looksLikeUID(name string) bool {
	return len(name) == 36 && strings.Count(name, "-") == 4 && strings.Trim(name, "0123456789abcdef-") == ""
}

// journalDirs returns the state folder, which is empty if only a journal is given, and the journal's
// folder.
func (f *whyFlags) journalDirs() (state, dir string) {
	if f.journal == "" {
		return f.stateDir, filepath.Join(f.stateDir, agent.JournalDir)
	}
	if below := filepath.Join(f.journal, agent.JournalDir); exists(below) {
		return f.journal, below
	}
	if filepath.Base(f.journal) == agent.JournalDir {
		if above := filepath.Dir(filepath.Clean(f.journal)); exists(filepath.Join(above, agent.EngineFile)) {
			return above, f.journal
		}
	}
	return "", f.journal
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// journalNode returns the node of the journal in a state folder, or "" if it is unknown.
func journalNode(state string) string {
	if state == "" {
		return ""
	}
	var of struct {
		Node string `json:"node"`
	}
	if raw, err := os.ReadFile(filepath.Join(state, events.StateFile)); err == nil && json.Unmarshal(raw, &of) == nil && of.Node != "" {
		return of.Node
	}
	return defaultNode()
}

// nodeOfState is [journalNode] of a folder whose disk may hang.
func nodeOfState(reads *bounded.Calls, within time.Duration, state string) string {
	node, err := bounded.Do(reads, within, func() (string, error) { return journalNode(state), nil })
	if err != nil {
		return defaultNode()
	}
	return node
}

// defaultNode returns this node's name without a configuration, or "" if it is unknown.
func defaultNode() string {
	name, _, _ := new(agent.KubeSettings).ResolveNodeName(nil)
	return name
}

// alive adds a note to in if no agent writes the journal any more.
func alive(in *why.Input, state string, now time.Time) error {
	info, err := os.Stat(filepath.Join(state, agent.EngineFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // the agent started less than half a minute ago
	case err != nil:
		return err
	}
	if age := now.Sub(info.ModTime()); age > deadAfter {
		in.Blind = append(in.Blind, why.Blind{Source: "agent", Why: "no running agent writes this journal", Since: info.ModTime()})
	}
	return nil
}

// savedDiagnoses adds the state folder's Diagnoses of the subject to in, and notes those that can't
// be read. Those of users explain no node.
func savedDiagnoses(in *why.Input, state string, agentNamespaces []string) {
	views, err := agent.ReadDiagnoses(agent.RunsDirs(state)...)
	if err != nil {
		in.Unread = append(in.Unread, why.Unread{What: "diagnoses", Why: err.Error()})
		return
	}
	for _, v := range views {
		if v.Err != nil {
			in.Unread = append(in.Unread, why.Unread{What: "diagnosis " + v.Report.ID, Why: v.Err.Error()})
			continue
		}
		d := savedDiagnosis(v)
		switch of, err := worker.ReadTaken(v.Dir, v.Report.ID); {
		case err == nil && in.Subject.Kind == why.KindNode && ofUser(of, agentNamespaces):
			continue
		case err == nil:
			d.UID, d.PodUID = string(of.UID), cmp.Or(d.PodUID, trigger.PodUID(of))
		case !errors.Is(err, fs.ErrNotExist): // otherwise a person has started it
			in.Unread = append(in.Unread, why.Unread{What: "origin of diagnosis " + d.Name, Why: err.Error()})
		}
		if in.Subject.Kind == why.KindNode || d.PodUID != "" && d.PodUID == in.Subject.UID {
			in.Diagnoses = append(in.Diagnoses, d)
		}
	}
	slices.SortStableFunc(in.Diagnoses, func(a, b why.Diagnosis) int { return b.Started.Compare(a.Started) })
}

// ofUser reports whether a user of a namespace may have created a Diagnosis: it is about a pod of its own
// namespace, and this is none with agents.
func ofUser(d *v1alpha1.Diagnosis, agentNamespaces []string) bool {
	return d.Namespace != "" && d.Pod().Namespace == d.Namespace && !slices.Contains(agentNamespaces, d.Namespace)
}

func savedDiagnosis(v *agent.Diagnosis) why.Diagnosis {
	rep, p := v.Report, v.Parameters
	d := why.Diagnosis{
		Name: rep.ID, Rule: p["rule"], Reason: p["reason"], Subject: p["subject"], PodUID: p["podUID"], Container: cmp.Or(p["container"], p["containerID"]),
		Started: rep.Started, Ended: rep.Ended,
	}
	if rep.Verdict != nil {
		d.Verdict, d.Message = rep.Verdict.Reason, rep.Verdict.Message
	}
	var status v1alpha1.DiagnosisStatus
	rep.Status(&status)
	whycluster.Results(&d, status.Results, status.SucceededPath)
	return d
}

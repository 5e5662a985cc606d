package why

import (
	"maps"
	"slices"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
)

// Merge combines what a journal and the API have about the same subject. If both have it, problems
// and diagnoses come from the journal, which is complete and knows what has ended; conditions and
// names come from the API.
func Merge(journal, api Input) Input {
	out := api
	if out.Subject.UID == "" {
		out.Subject.UID = journal.Subject.UID
	}
	if journal.Now.After(out.Now) {
		out.Now = journal.Now
	}
	out.Read = append(slices.Clone(journal.Read), api.Read...)
	out.Unread = append(slices.Clone(journal.Unread), api.Unread...)
	out.Blind = append(slices.Clone(journal.Blind), api.Blind...)
	out.Pods = maps.Clone(journal.Pods)
	if out.Pods == nil {
		out.Pods = map[string]string{}
	}
	maps.Copy(out.Pods, api.Pods)
	if out.Advice == nil {
		out.Advice = journal.Advice
	}
	out.Problems = slices.Clone(journal.Problems)
	for _, p := range api.Problems {
		if !slices.ContainsFunc(journal.Problems, func(o Problem) bool { return sameProblem(&o, &p) }) {
			out.Problems = append(out.Problems, p)
		}
	}
	out.Diagnoses = slices.Clone(api.Diagnoses)
	for _, d := range journal.Diagnoses {
		same := func(o Diagnosis) bool {
			return o.Name == d.Name || o.Set == d.Set && o.Set != "" && o.Started.Sub(d.Started).Abs() < time.Second
		}
		if !slices.ContainsFunc(api.Diagnoses, same) {
			out.Diagnoses = append(out.Diagnoses, d)
		}
	}
	out.Conditions = slices.Clone(api.Conditions)
	for _, c := range journal.Conditions {
		if !slices.ContainsFunc(api.Conditions, func(o problem.Condition) bool { return o.Type == c.Type }) {
			out.Conditions = append(out.Conditions, c)
		}
	}
	return out
}

// sameProblem reports whether a series of the API reports the problem of the journal. A series on
// the Node may report several problems; then all of them are in the journal.
func sameProblem(journal, api *Problem) bool {
	return journal.Reason == api.Reason && (api.Pod == "" || journal.Pod == api.Pod) && !journal.Last.Before(api.Last.Add(-sameMoment))
}

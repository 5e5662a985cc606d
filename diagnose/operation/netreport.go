package operation

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

const (
	// netMaxResult bounds a result of the network's built-ins, netMaxMessage a verdict's
	// message, netMaxName a name in either.
	netMaxResult  = 1024
	netMaxMessage = 1024
	netMaxName    = 128
)

// netReport gathers the results of a run and what it could not look at.
type netReport struct {
	results map[string]string
	notes   []string
}

func newNetReport(p *netPlace) *netReport {
	r := &netReport{results: map[string]string{}}
	if p != nil {
		r.set("targetNetNS", strconv.FormatUint(uint64(p.inode), 10))
	}
	return r
}

// netResults declares the given results and those that every report may have.
func netResults(own ...Result) []Result {
	return append(own,
		Result{Name: "targetNetNS", Doc: "inode of the network namespace that was looked into"},
		Result{Name: "note", Doc: "what could not be looked at, or was left out"})
}

// set keeps a result; an empty one is left out.
func (r *netReport) set(name, value string) {
	if value != "" {
		r.results[name] = event.SafeText(value, netMaxResult)
	}
}

func (r *netReport) count(name string, n uint64) { r.results[name] = strconv.FormatUint(n, 10) }

// note tells once of what is missing.
func (r *netReport) note(format string, args ...any) {
	s := event.SafeText(fmt.Sprintf(format, args...), netMaxName*2)
	if !slices.Contains(r.notes, s) {
		r.notes = append(r.notes, s)
	}
}

func (r *netReport) output(v *Verdict) Output {
	r.set("note", strings.Join(r.notes, "; "))
	return Output{Results: r.results, Verdict: v}
}

// netPrintf writes into what tells of an error at its Flush: a bufio.Writer, a
// tabwriter.Writer.
func netPrintf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// artifact writes a file. One that does not fit the budget is cut, and noted.
func (r *netReport) artifact(call *Call, name string, write func(w io.Writer)) error {
	if call.Artifacts == nil {
		r.note("%s was not kept: no artifacts are taken", name)
		return nil
	}
	file, err := call.Artifacts.Create(name)
	if err == nil {
		w := bufio.NewWriter(file)
		write(w)
		err = errors.Join(w.Flush(), file.Close())
	}
	switch {
	case errors.Is(err, ErrArtifactBudget):
		r.note("%s is cut: %s", name, ErrArtifactBudget)
	case err != nil:
		return fmt.Errorf("write artifact %s: %w", name, err)
	}
	return nil
}

// netVerdict makes a verdict, netRefuted the answer no; both bound their message.
func netVerdict(reason, format string, args ...any) *Verdict {
	return &Verdict{Reason: reason, Message: netMessage(format, args...)}
}

func netRefuted(reason, format string, args ...any) *Refuted {
	return &Refuted{Reason: reason, Message: netMessage(format, args...)}
}

func netMessage(format string, args ...any) string {
	return event.SafeText(fmt.Sprintf(format, args...), netMaxMessage)
}

// netWindowParameter is how long counters are watched.
func netWindowParameter(preset string) Parameter {
	return Parameter{
		Name: "window", Doc: "how long counters are watched for their increase", Kind: Duration,
		Default: preset, Max: int64(time.Minute),
	}
}

// netWait waits for d, or until ctx ends, which is an error.
func netWait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// netIncrease is how much a counter grew; one that was reset starts from zero.
func netIncrease(before, after uint64) uint64 {
	if after < before {
		return after
	}
	return after - before
}

// netList joins texts, at most limit of them, and says how many are left out.
func netList(texts []string, limit int) string {
	if len(texts) <= limit {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:limit], ", "), len(texts)-limit)
}

// netCounts is how often each of some names is there, the most frequent first.
func netCounts(counts map[string]int) string {
	names := slices.Collect(maps.Keys(counts))
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	const shown = 16
	return netList(names, shown)
}

// netLines joins sentences, at most limit of them and no longer than a result may be, and
// says how many are left out.
func netLines(texts []string, limit int) string {
	size, n := 0, 0
	const more = 32 // for what says how many
	for n < min(limit, len(texts)) && size+len(texts[n])+len("; ") <= netMaxResult-more {
		size += len(texts[n]) + len("; ")
		n++
	}
	out := strings.Join(texts[:n], "; ")
	if n < len(texts) {
		out += fmt.Sprintf("; and %d more", len(texts)-n)
	}
	return out
}

package network

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
)

const (
	// maxResult bounds a result of the network operations, maxName a name in it.
	maxResult = 1024
	maxName   = 128
)

// inspect returns the Run of an operation: find finds what the parameters select and starts the
// report, run completes it and returns the verdict, if there is one.
func inspect[T any](
	h operation.Host,
	find func(operation.Host, operation.Values) (T, *operation.Finding, error),
	run func(ctx context.Context, call *operation.Call, p T, r *operation.Finding) (*operation.Verdict, error),
) func(context.Context, *operation.Call) (operation.Output, error) {
	return func(ctx context.Context, call *operation.Call) (operation.Output, error) {
		p, r, err := find(h, call.Parameters)
		if err != nil {
			return operation.Output{}, err
		}
		verdict, err := run(ctx, call, p, r)
		if err != nil {
			return operation.Output{}, err
		}
		return r.Output(verdict), nil
	}
}

// newReport returns an empty finding about a place; nil: not known yet.
func newReport(p *place) *operation.Finding {
	f := operation.NewFinding()
	f.Shown = maxResult
	if p != nil {
		f.Uint("targetNetNS", uint64(p.inode))
	}
	return f
}

// results adds the results that every report may have.
func results(own ...operation.Result) []operation.Result {
	return append(own,
		operation.Result{Name: "targetNetNS", Doc: "inode of the inspected network namespace"},
		operation.NoteResult())
}

// windowParameter returns the parameter for how long counters are watched.
func windowParameter(preset string) operation.Parameter {
	return operation.Parameter{
		Name: "window", Doc: "how long to watch the counters", Kind: operation.Duration,
		Default: preset, Max: int64(time.Minute),
	}
}

// counts formats counts by name, the most frequent first.
func counts(counts map[string]int) string {
	names := slices.Collect(maps.Keys(counts))
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	const shown = 16
	return display.List(names, shown)
}

// lines joins texts, at most limit of them and no longer than a result may be, and appends how many
// are left out.
func lines(texts []string, limit int) string {
	size, n := 0, 0
	const more = 32 // for the number left out
	for n < min(limit, len(texts)) && size+len(texts[n])+len("; ") <= maxResult-more {
		size += len(texts[n]) + len("; ")
		n++
	}
	out := strings.Join(texts[:n], "; ")
	if n < len(texts) {
		out += fmt.Sprintf("; and %d more", len(texts)-n)
	}
	return out
}

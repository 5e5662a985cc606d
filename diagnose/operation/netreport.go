package operation

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

const (
	// netMaxResult bounds a result of the network's built-ins, netMaxName a name in it.
	netMaxResult = 1024
	netMaxName   = 128
)

// newNetReport begins what a network's built-in tells of a place; nil: it is not known yet.
func newNetReport(p *netPlace) *finding {
	f := &finding{results: map[string]string{}, shown: netMaxResult}
	if p != nil {
		f.uint("targetNetNS", uint64(p.inode))
	}
	return f
}

// netResults declares the given results and those that every report may have.
func netResults(own ...Result) []Result {
	return append(own,
		Result{Name: "targetNetNS", Doc: "inode of the network namespace that was looked into"},
		Result{Name: "note", Doc: "what could not be looked at, or was left out"})
}

// netPrintf writes into what tells of an error at its Flush: a bufio.Writer, a
// tabwriter.Writer.
func netPrintf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// netWindowParameter is how long counters are watched.
func netWindowParameter(preset string) Parameter {
	return Parameter{
		Name: "window", Doc: "how long counters are watched for their increase", Kind: Duration,
		Default: preset, Max: int64(time.Minute),
	}
}

// netIncrease is how much a counter grew; one that was reset starts from zero.
func netIncrease(before, after uint64) uint64 {
	if after < before {
		return after
	}
	return after - before
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
	return display.List(names, shown)
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

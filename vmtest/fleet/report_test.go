package fleet

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// String formats a phase as one line.
func (r *row) String() string {
	var parts []string
	for k, c := range r.Written.Kinds {
		if c.Writes > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", kind(k), c.rate(r.Lasted)))
		}
	}
	text := []string{round(r.Lasted).String(), strings.Join(parts, ", ")}
	if len(r.Written.Changed) > 0 {
		text = append(text, fmt.Sprintf("changed in Diagnoses: %v", r.Written.Changed))
	}
	if r.Settled > 0 {
		text = append(text, fmt.Sprintf("all written after %s", round(r.Settled)))
	}
	if r.Note != "" {
		text = append(text, r.Note)
	}
	for _, p := range slices.Sorted(maps.Keys(r.Used)) {
		text = append(text, fmt.Sprintf("%s %d MiB, %.2f CPUs", p, r.Used[p].RSS>>20, r.Used[p].CPU.Seconds()/r.Lasted.Seconds()))
	}
	return strings.Join(text, "; ")
}

// rate formats how much was written: total, average and maximum per second.
func (c counts) rate(lasted time.Duration) string {
	if c.Writes == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%.1f/s, max %d)", c.Writes, float64(c.Writes)/lasted.Seconds(), c.Peak)
}

// table formats a Markdown table.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	b.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
	for _, cells := range rows {
		line(cells)
	}
	return b.String()
}

// markdown returns the results for the documentation.
func (f *fleet) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d agents on %d CPUs beside everything else; Kubernetes %s. Writes to etcd: total, average per second, maximum in a second.\n\n", f.nodes, runtime.NumCPU(), f.version)
	var writes, costs [][]string
	for _, r := range f.rows {
		done := "–"
		if r.Settled > 0 {
			done = round(r.Settled).String()
		}
		cells := []string{r.Phase, round(r.Lasted).String(), done}
		for k := range r.Written.Kinds {
			if kind(k) != kindServers {
				cells = append(cells, r.Written.Kinds[k].rate(r.Lasted))
			}
		}
		writes = append(writes, cells)
		cells = []string{
			r.Phase, display.Bytes(r.Sent), display.Bytes(r.bytes()), display.Bytes(r.EtcdGrowth), strconv.FormatInt(r.Revisions, 10),
			fmt.Sprintf("%.0f", r.Watches), fmt.Sprintf("%.0f (%s)", r.Shown, display.Bytes(int64(r.ShownSize))),
		}
		for _, p := range []program{programAPI, programEtcd, programLeader, programSpare, programAgents} {
			cells = append(cells, fmt.Sprintf("%s, %.2f", display.Bytes(r.Used[p].RSS), r.Used[p].CPU.Seconds()/r.Lasted.Seconds()))
		}
		costs = append(costs, cells)
	}
	b.WriteString(table([]string{"phase", "lasted", "all written after", "Nodes", "Events", "Leases", "Diagnoses", "policies", "other"}, writes))
	b.WriteString("\nMemory: maximum. CPUs: average. *Written*: keys and values. *Grown*: etcd's database.\n\n")
	b.WriteString(table([]string{"phase", "sent by agents", "written", "grown", "revisions", "watches", "sent to watches", "kube-apiserver", "etcd", "leading controller", "standby", "all agents"}, costs))
	b.WriteString("\n")
	for _, r := range f.rows {
		if r.Note != "" {
			fmt.Fprintf(&b, "- %s: %s.\n", r.Phase, r.Note)
		}
	}
	if !f.done {
		b.WriteString("\nThe run did not complete.\n")
	} else if len(f.wrong) == 0 {
		b.WriteString("\nNothing was lost, duplicated, or written without a change.\n")
	}
	if len(f.wrong) > 0 {
		fmt.Fprintf(&b, "\n%d violations:\n\n", len(f.wrong))
		for _, text := range f.wrong {
			fmt.Fprintf(&b, "- %s\n", text)
		}
	}
	if lines := f.extrapolate(farNodes); len(lines) > 0 {
		fmt.Fprintf(&b, "\nComputed for %d nodes, from what this run measured for each node:\n\n%s", farNodes, table([]string{"", "measured", "computed"}, lines))
	}
	return b.String()
}

// farNodes is the number of nodes for which costs are extrapolated.
const farNodes = 15000

// bytes returns the size of all keys and values written.
func (r *row) bytes() (n int64) {
	for _, c := range r.Written.Kinds {
		n += c.Bytes
	}
	return n
}

func (f *fleet) row(phase string) *row {
	for _, r := range f.rows {
		if strings.HasPrefix(r.Phase, phase) {
			return r
		}
	}
	return nil
}

// extrapolate computes the costs of more nodes. All are proportional to the number of nodes, with
// one exception: each write of a Diagnosis is compared with the watch of each node, so that a
// Diagnosis of each node costs the square.
func (f *fleet) extrapolate(nodes int) (lines [][]string) {
	times := float64(nodes) / float64(f.nodes)
	add := func(what, format string, measured, factor float64) {
		lines = append(lines, []string{what, fmt.Sprintf(format, measured), fmt.Sprintf(format, measured*factor)})
	}
	memory := func(what string, r *row, p program) {
		fixed := float64(f.fresh[p].RSS)
		if p == programAPI || p == programEtcd {
			fixed = 0 // the Nodes are included already
		}
		measured := float64(r.Used[p].RSS)
		lines = append(lines, []string{what, display.Bytes(int64(measured)), display.Bytes(int64(fixed + (measured-fixed)*times))})
	}
	if r := f.row("idle"); r != nil {
		add("idle: writes a second", "%.0f", float64(r.Written.Kinds[kindLease].Writes)/r.Lasted.Seconds(), times)
		add("idle: the same with heartbeats every 5 minutes", "%.0f", float64(r.Written.Kinds[kindLease].Writes)/r.Lasted.Seconds()+float64(f.nodes)/300, times)
		add("idle: MiB written to etcd an hour", "%.0f", float64(r.bytes())/(1<<20)*3600/r.Lasted.Seconds(), times)
		add("idle: watches", "%.0f", r.Watches, times)
		add("idle: CPUs of kube-apiserver", "%.2f", r.Used[programAPI].CPU.Seconds()/r.Lasted.Seconds(), times)
		add("idle: CPUs of etcd", "%.2f", r.Used[programEtcd].CPU.Seconds()/r.Lasted.Seconds(), times)
		memory("idle: memory of kube-apiserver", r, programAPI)
		memory("idle: memory of the leading controller", r, programLeader)
	}
	if r := f.row("storm"); r != nil {
		add("storm: CPU seconds of kube-apiserver", "%.0f", r.Used[programAPI].CPU.Seconds(), times)
		add("storm: seconds until all is written, on two cores", "%.0f", r.Settled.Seconds(), times)
	}
	if r := f.row("a Diagnosis of each node"); r != nil {
		add("a Diagnosis of each node: writes", "%.0f", float64(r.Written.Kinds[kindDiagnosis].Writes), times)
		compared := float64(r.Written.Kinds[kindDiagnosis].Writes) * float64(f.nodes) * f.watch.perWatch().Seconds()
		add("of which comparisons with watches, CPU seconds", "%.0f", compared, times*times)
		total := r.Used[programAPI].CPU.Seconds()
		lines = append(lines, []string{"a Diagnosis of each node: CPU seconds of kube-apiserver", fmt.Sprintf("%.0f", total), fmt.Sprintf("%.0f", max(0, total-compared)*times+compared*times*times)})
		add("a Diagnosis of each node: seconds until all wait", "%.0f", r.Settled.Seconds(), times)
		memory("a Diagnosis of each node: memory of the leading controller", r, programLeader)
	}
	if w := f.watch; w.Watches > 0 {
		add("watches of Diagnoses by node: MiB of kube-apiserver", "%.0f", float64(w.Bytes)*float64(w.Watches)/(1<<20), times)
		add("a write of a Diagnosis: ms of CPU time for comparisons", "%.2f", ms(w.perWatch())*float64(w.Watches), times)
	}
	return lines
}

// Marks around the latest measurements in a page.
const (
	beginMark = "<!-- measured: begin; make fleet writes it -->\n"
	endMark   = "<!-- measured: end -->\n"
)

// writePage replaces the text between the marks of a page.
func writePage(page, text string) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok1 := strings.Cut(string(old), beginMark)
	_, after, ok2 := strings.Cut(rest, endMark)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no marks %q and %q", page, strings.TrimSpace(beginMark), strings.TrimSpace(endMark))
	}
	return os.WriteFile(page, []byte(before+beginMark+text+endMark+after), 0o644)
}

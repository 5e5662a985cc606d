package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/vmtest/kernel"
)

// table is kernel × fault.
type table struct {
	kernels []kernel.Image
	rows    []key
	cells   map[key]map[string]cell // by kernel name
	skipped map[string][]string     // by "test: reason": kernel names
	again   bool                    // lines that failed were run again
}

// newTable brings the outcomes of all jobs together. Stems are in the order in which they
// first came, and the lines of each sorted, so that two reports can be compared.
func newTable(kernels []kernel.Image, outcomes []outcome) table {
	t := table{kernels: kernels, cells: map[key]map[string]cell{}, skipped: map[string][]string{}}
	var stems []string
	for _, o := range outcomes {
		for _, k := range o.order {
			if t.cells[k] == nil {
				t.cells[k] = map[string]cell{}
				t.rows = append(t.rows, k)
			}
			if c := o.cells[k]; c.state >= t.cells[k][o.kernel.Name].state {
				t.cells[k][o.kernel.Name] = c
			}
			if !slices.Contains(stems, k.stem) {
				stems = append(stems, k.stem)
			}
		}
		for _, s := range o.skipped {
			t.skipped[s] = append(t.skipped[s], o.kernel.Name)
		}
	}
	slices.SortFunc(t.rows, func(a, b key) int {
		return cmp.Or(slices.Index(stems, a.stem)-slices.Index(stems, b.stem), strings.Compare(a.fault, b.fault))
	})
	return t
}

func (t table) failures() (n int) {
	for _, row := range t.cells {
		for _, c := range row {
			if c.state == failed {
				n++
			}
		}
	}
	return n
}

// notes number the reasons of all cells that are not simply passed.
type notes []string

func (n *notes) number(text string) int {
	if i := slices.Index(*n, text); i >= 0 {
		return i + 1
	}
	*n = append(*n, text)
	return len(*n)
}

func (c cell) text(n *notes) string {
	switch c.state {
	case passed:
		return "ok"
	case failed:
		return fmt.Sprintf("FAIL [%d]", n.number(c.reason))
	case notApplicable:
		return fmt.Sprintf("n/a [%d]", n.number(c.reason+" is not set"))
	default:
		return "–"
	}
}

// grid is the table as text, its first line the head.
func (t table) grid() (lines [][]string, n notes) {
	head := []string{"stem", "fault"}
	for _, k := range t.kernels {
		head = append(head, k.Name)
	}
	lines = append(lines, head)
	for _, k := range t.rows {
		line := []string{k.stem, k.fault}
		for _, im := range t.kernels {
			line = append(line, t.cells[k][im.Name].text(&n))
		}
		lines = append(lines, line)
	}
	return lines, n
}

// print writes the table for a terminal.
func (t table) print(w io.Writer) error {
	lines, notes := t.grid()
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, c := range line {
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		for i, c := range line {
			fmt.Fprintf(&b, "%s%s  ", c, strings.Repeat(" ", widths[i]-len([]rune(c))))
		}
		b.WriteString("\n")
	}
	for i, note := range notes {
		fmt.Fprintf(&b, "[%d] %s\n", i+1, note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown writes the page docs/kernels.md.
func (t table) markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(pageHead)
	b.WriteString("| name | release | package | version |\n|---|---|---|---|\n")
	for _, k := range t.kernels {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", k.Name, k.Release, k.Package, k.Version)
	}
	b.WriteString("\n## Faults\n\n")
	lines, notes := t.grid()
	for i, line := range lines {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(line)) + "|\n")
		}
	}
	b.WriteString("\n")
	for i, note := range notes {
		fmt.Fprintf(&b, "[%d] %s\n", i+1, escape(note))
	}
	if t.again {
		b.WriteString("\nThe lines of this page are not all of one run: machines in which something had failed were run again.\n")
	}
	if len(t.skipped) > 0 {
		b.WriteString("\n## Skipped\n\nTests of the packages (the last lines of the table) that say that a kernel has\nnot what they are about:\n\n")
		for _, s := range sortedKeys(t.skipped) {
			fmt.Fprintf(&b, "- %s (%s)\n", escape(s), strings.Join(t.skipped[s], ", "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const pageHead = `# Kernels

Written by ` + "`make vmtest-report`" + `: what was seen on which kernel, in virtual machines
with real faults. "ok" means: each fault was provoked (23 times, unless its name
says otherwise), every one was reported once, none was lost, subject and cause were
right, and what it led to has cleared. "n/a" means that the kernel is built
without the option that the note names. "–": not run there; the generic kernels
are here for ext4 as a module alone.

## Kernels

`

func escape(s string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", "_", "\\_", "*", "\\*").Replace(s)
}

func sortedKeys(m map[string][]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

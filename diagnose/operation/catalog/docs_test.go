package catalog

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/diagnose/operation"
)

var update = flag.Bool("update", false, "update docs/operations.md and docs/operations/*.md")

const (
	indexPath  = "../../../docs/operations.md"
	indexTable = "| operation | purpose |\n|---|---|\n"
)

// TestDocs compares docs/operations.md and docs/operations/*.md with the declared built-ins.
// Their descriptions are written by hand. -update writes the rest (operations, parameters
// and results, types and effects) and takes the description of what is new from its Doc.
func TestDocs(t *testing.T) {
	all := All(operation.Host{})
	index := readDoc(t, indexPath)
	files := map[string]string{indexPath: index}
	common := parsePage(index)
	bySubject := map[string][]*operation.Builtin{}
	for i := range all {
		s := subject(t, all[i].Name)
		bySubject[s] = append(bySubject[s], &all[i])
	}
	var wrong []string
	for s, ops := range bySubject {
		path := pagePath(s)
		files[path] = readDoc(t, path)
		p := parsePage(files[path])
		p.common = common
		wrong = append(wrong, p.sync(ops)...)
		checkFile(t, path, files[path], p.String())
	}
	pages, err := filepath.Glob(pagePath("*"))
	if err != nil || len(pages) != len(bySubject) {
		t.Errorf("%q are %d pages of %d subjects (%v)", pages, len(pages), len(bySubject), err)
	}
	checkFile(t, indexPath, index, syncIndex(t, index, all))
	for _, w := range append(wrong, common.unused()...) {
		t.Error(w)
	}
}

func pagePath(subject string) string { return "../../../docs/operations/" + subject + ".md" }

func readDoc(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func checkFile(t *testing.T, path, have, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(want, have); diff != "" {
		t.Errorf("%s: run with -update (-want +have):\n%s", path, diff)
	}
}

// subject returns the package that declares an operation.
func subject(t *testing.T, name string) string {
	t.Helper()
	all, err := filepath.Glob("../*/*.go")
	declares := regexp.MustCompile(`(?m)^\s+Name:\s+"` + name + `"`)
	found := slices.DeleteFunc(all, func(path string) bool {
		return strings.HasSuffix(path, "_test.go") || !declares.MatchString(readDoc(t, path))
	})
	if err != nil || len(found) != 1 {
		t.Fatalf("the source of %s: got %q, want one file (%v)", name, found, err)
	}
	return filepath.Base(filepath.Dir(found[0]))
}

// syncIndex returns the index with its table updated: operations by effect.
func syncIndex(t *testing.T, index string, all []operation.Builtin) string {
	t.Helper()
	head, table, ok := strings.Cut(index, indexTable)
	if !ok {
		t.Fatalf("%s lacks the table %q", indexPath, indexTable)
	}
	purposes := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| \[([^]]*)\].* \| ([^|]*[^|\s]) \|$`).FindAllStringSubmatch(table, -1) {
		purposes[m[1]] = m[2]
	}
	byEffect := map[string]string{}
	for i := range all {
		o := &all[i]
		first, _, _ := strings.Cut(strings.TrimSuffix(o.Doc, "."), ". ")
		byEffect[effect(o)] += fmt.Sprintf("| [%s](operations/%s.md#%s) | %s |\n", o.Name, subject(t, o.Name), o.Name, cmp.Or(purposes[o.Name], cell(first)))
	}
	var b strings.Builder
	b.WriteString(head + indexTable)
	for _, e := range slices.Sorted(maps.Keys(byEffect)) {
		b.WriteString("| **" + e + "** | |\n" + byEffect[e])
	}
	return b.String()
}

// A page consists of sections: one of each operation, and those that only have what
// operations have in common.
type page struct {
	sections []*section
	common   *page // the index
}

type section struct {
	name                string
	text                string // the heading and what precedes the tables
	parameters, results []*row
}

// row describes parameters of one type, or results. A row with a link is described by the section
// that the link leads to. Each link in a line "Parameters: " or "Results: " of the text is such a
// row; without names it means all that the section describes.
type row struct {
	cell, form, doc string
	names           []string
	link            string
	inText          bool
	used            map[string]bool // its names to which an operation links
}

func parsePage(text string) *page {
	p := &page{}
	var table *[]*row
	s := &section{}
	p.sections = append(p.sections, s)
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "## "), strings.HasPrefix(line, "### "):
			s, table = &section{name: anchor(line), text: line}, nil
			p.sections = append(p.sections, s)
		case strings.HasPrefix(line, "| parameter |"):
			table = &s.parameters
		case strings.HasPrefix(line, "| result |"):
			table = &s.results
		case table != nil && strings.HasPrefix(line, "|---"):
		case table != nil && strings.HasPrefix(line, "| "):
			*table = append(*table, parseRow(line, table == &s.parameters))
		case table == nil:
			s.text += line
			if strings.HasPrefix(line, "Parameters: ") {
				s.parameters = append(s.parameters, parseLinks(line)...)
			} else if strings.HasPrefix(line, "Results: ") {
				s.results = append(s.results, parseLinks(line)...)
			}
		}
	}
	return p
}

func parseRow(line string, form bool) *row {
	columns := strings.SplitN(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "|"), "| ", 4)[1:]
	r := &row{cell: strings.TrimSpace(columns[0]), doc: strings.TrimSpace(strings.Join(columns[1:], "| ")), used: map[string]bool{}}
	if form && len(columns) == 3 {
		r.form, r.doc = strings.TrimSpace(columns[1]), strings.TrimSpace(columns[2])
	}
	r.names = parseNames(r.cell)
	if m := regexp.MustCompile(`\]\(([^)]*)\)`).FindStringSubmatch(r.cell); m != nil {
		r.link = m[1]
	}
	return r
}

// parseLinks returns a row for each link of a line.
func parseLinks(line string) []*row {
	var rows []*row
	for _, m := range regexp.MustCompile(`\[([^]]*)\]\(([^)]*)\)`).FindAllStringSubmatch(line, -1) {
		rows = append(rows, &row{cell: m[0], names: parseNames(m[1]), link: m[2], inText: true, used: map[string]bool{}})
	}
	return rows
}

func parseNames(s string) []string {
	var names []string
	for _, m := range regexp.MustCompile("`([a-zA-Z0-9]+)`").FindAllStringSubmatch(s, -1) {
		names = append(names, m[1])
	}
	return names
}

// anchor returns GitHub's anchor of a heading.
func anchor(heading string) string {
	heading = strings.ToLower(strings.TrimSpace(strings.TrimLeft(heading, "#")))
	return strings.ReplaceAll(regexp.MustCompile("[^a-z0-9 -]").ReplaceAllString(heading, ""), " ", "-")
}

func (p *page) String() string {
	var b strings.Builder
	for _, s := range p.sections {
		b.WriteString(strings.TrimRight(s.text, "\n") + "\n")
		writeTable(&b, "| parameter | type | meaning |\n|---|---|---|\n", s.parameters, true)
		writeTable(&b, "| result | meaning |\n|---|---|\n", s.results, false)
		b.WriteString("\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func writeTable(b *strings.Builder, head string, rows []*row, form bool) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r *row) bool { return r.inText })
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n" + head)
	for _, r := range rows {
		columns := []string{r.cell, r.form, r.doc}
		if !form {
			columns = slices.Delete(columns, 1, 2)
		}
		b.WriteString("|")
		for _, c := range columns {
			b.WriteString(strings.TrimRight(" "+c, " ") + " |")
		}
		b.WriteString("\n")
	}
}

func (p *page) section(name string) *section {
	i := slices.IndexFunc(p.sections, func(s *section) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return p.sections[i]
}

// target returns the section that a row's link leads to, and nil if there is none.
func (p *page) target(r *row) *section {
	from, to, _ := strings.Cut(r.link, "#")
	if from == "../operations.md" {
		return p.common.section(to)
	}
	return p.section(to)
}

// expand gives rows of the text that have no names all that the linked section describes.
func (p *page) expand(rows []*row, table func(*section) []*row) {
	for _, r := range rows {
		target := p.target(r)
		if !r.inText || len(r.names) > 0 || target == nil {
			continue
		}
		for _, there := range table(target) {
			if there.link == "" {
				r.names = append(r.names, there.names...)
			}
		}
	}
}

func parametersOf(s *section) []*row { return s.parameters }

func resultsOf(s *section) []*row { return s.results }

// sync updates the sections of operations, and returns what it cannot update.
func (p *page) sync(ops []*operation.Builtin) []string {
	var wrong []string
	declared := map[string]bool{}
	for _, o := range ops {
		declared[o.Name] = true
	}
	for _, o := range ops {
		s := p.section(o.Name)
		if s == nil {
			s = &section{name: o.Name, text: "## " + o.Name + "\n\n" + o.Doc + "\n"}
			at := slices.IndexFunc(p.sections, func(s *section) bool { return declared[s.name] && s.name > o.Name })
			if at < 0 {
				at = len(p.sections)
			}
			p.sections = slices.Insert(p.sections, at, s)
		}
		heading, text, _ := strings.Cut(s.text, "\n\n")
		text = regexp.MustCompile(`^\*\*[^*]*\.\*\* `).ReplaceAllString(text, "")
		s.text = heading + "\n\n**" + effect(o) + ".** " + cmp.Or(text, o.Doc+"\n")
		for _, fact := range regexp.MustCompile(`\b[A-Z]\w*[a-z]\w*[A-Z]\w*|\b[\w-]+\.(txt|json|pcapng)\b`).FindAllString(o.Doc, -1) {
			if !strings.Contains(text, fact) {
				wrong = append(wrong, fmt.Sprintf("%s: the page does not mention %s", o.Name, fact))
			}
		}
	}
	var checks []func() []string // once the rows they compare with are up to date
	for _, o := range ops {
		s := p.section(o.Name)
		var parameters, results []fact
		for i := range o.Parameters {
			parameters = append(parameters, fact{o.Parameters[i].Name, cell(o.Parameters[i].Form()), cell(o.Parameters[i].Doc)})
		}
		for _, r := range o.Results {
			results = append(results, fact{name: r.Name, doc: cell(r.Doc)})
		}
		p.expand(s.parameters, parametersOf)
		p.expand(s.results, resultsOf)
		s.parameters = syncRows(s.parameters, parameters)
		s.results = syncRows(s.results, results)
		checks = append(checks,
			func() []string { return p.follow(s, s.parameters, parameters, parametersOf, declared) },
			func() []string { return p.follow(s, s.results, results, resultsOf, declared) })
	}
	for _, check := range checks {
		wrong = append(wrong, check()...)
	}
	return append(wrong, p.unused(slices.Collect(maps.Keys(declared))...)...)
}

// fact is a declared parameter or result.
type fact struct{ name, form, doc string }

// fill fills in the type of the row's names, and a missing description. It returns false if
// one of them is not declared, has a row already, or is of another type.
func (r *row) fill(facts []fact, named map[string]bool) bool {
	for n, name := range r.names {
		i := slices.IndexFunc(facts, func(f fact) bool { return f.name == name })
		if i < 0 || named[name] || n > 0 && facts[i].form != r.form {
			return false
		}
		r.form, r.doc = facts[i].form, cmp.Or(r.doc, facts[i].doc)
	}
	return len(r.names) > 0
}

// syncRows updates the rows without a link, drops those of undeclared names, and adds
// missing ones.
func syncRows(rows []*row, facts []fact) []*row {
	var kept []*row
	named := map[string]bool{}
	for _, r := range rows {
		if r.link == "" && !r.fill(facts, named) {
			continue
		}
		kept = append(kept, r)
		for _, n := range r.names {
			named[n] = true
		}
	}
	for _, f := range facts {
		if !named[f.name] {
			kept = append(kept, &row{cell: "`" + f.name + "`", form: f.form, doc: f.doc, names: []string{f.name}, used: map[string]bool{}})
		}
	}
	return kept
}

// follow checks the rows with links: each name is declared once, and has a row of the
// declared type where the link leads.
func (p *page) follow(s *section, rows []*row, facts []fact, table func(*section) []*row, operations map[string]bool) []string {
	var wrong []string
	seen := map[string]int{}
	for _, r := range rows {
		if len(r.names) == 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %s leads to no rows", s.name, r.cell))
		}
		for _, name := range r.names {
			seen[name]++
			i := slices.IndexFunc(facts, func(f fact) bool { return f.name == name })
			if i < 0 || seen[name] > 1 {
				wrong = append(wrong, fmt.Sprintf("%s: %s is not declared, or has two rows", s.name, name))
				continue
			}
			if r.link == "" {
				continue
			}
			target := p.target(r)
			var there *row
			if target != nil {
				for _, row := range table(target) {
					if row.link == "" && slices.Contains(row.names, name) {
						there = row
					}
				}
			}
			if there == nil || target == s {
				wrong = append(wrong, fmt.Sprintf("%s: %s has no row in %s", s.name, name, r.link))
				continue
			}
			if !operations[target.name] && len(there.used) == 0 {
				there.form = facts[i].form
			}
			there.used[name] = true
			if there.form != facts[i].form {
				wrong = append(wrong, fmt.Sprintf("%s: %s is %q, but %q in %s", s.name, name, facts[i].form, there.form, r.link))
			}
		}
	}
	return wrong
}

// unused returns the rows of common sections that no operation links to.
func (p *page) unused(operations ...string) []string {
	var wrong []string
	for _, s := range p.sections {
		if slices.Contains(operations, s.name) {
			continue
		}
		for _, r := range slices.Concat(s.parameters, s.results) {
			for _, name := range r.names {
				if !r.used[name] {
					wrong = append(wrong, fmt.Sprintf("%s: no operation links to %s", s.name, name))
				}
			}
		}
	}
	return wrong
}

// effect describes what an operation may change, for whom, and who runs it if it is not the node.
func effect(o *operation.Builtin) string {
	switch {
	case o.ByController:
		return string(o.Effect) + ", by the controller"
	case o.TenantSafe:
		return string(o.Effect) + ", tenant-safe"
	}
	return string(o.Effect)
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

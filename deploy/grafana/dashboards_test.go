package grafana_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/deploy/grafana"
	"github.com/kernosis/kernosis/deploy/monitoringtest"
)

// The files are what the generator writes, and nothing else is there.
func TestFiles(t *testing.T) {
	files, err := grafana.Files()
	if err != nil {
		t.Fatal(err)
	}
	there, err := filepath.Glob("*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range there {
		if _, ok := files[name]; !ok {
			t.Errorf("%s: nobody writes it", name)
		}
	}
	for name, want := range files {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is old: make generate-deploy", name)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, got, "", "  "); err != nil || indented.String() != string(got) {
			t.Errorf("%s is not formatted: %v", name, err)
		}
	}
}

// Each dashboard has what Grafana needs, places that do not overlap, and links that lead to
// another one.
func TestDashboards(t *testing.T) {
	all := monitoringtest.Dashboards(t)
	if len(all) != 5 {
		t.Errorf("%d dashboards", len(all))
	}
	uids, titles := map[string]bool{}, map[string]bool{}
	for _, d := range all {
		if d.UID == "" || len(d.UID) > 40 || uids[d.UID] || d.Title == "" || titles[d.Title] || d.Description == "" || !slices.Contains(d.Tags, "kernosis") {
			t.Errorf("%s: uid %q, title %q, tags %v", d.File, d.UID, d.Title, d.Tags)
		}
		uids[d.UID], titles[d.Title] = true, true
		if d.SchemaVersion < 39 {
			t.Errorf("%s: schema %d is of a Grafana before 11", d.File, d.SchemaVersion)
		}
		if len(d.Links) != 1 || d.Links[0].Type != "dashboards" || !d.Links[0].KeepTime {
			t.Errorf("%s: no way to the others", d.File)
		}
	}
	for _, d := range all {
		ids, names := map[int]bool{}, map[string]bool{}
		taken := map[[2]int]string{}
		for i := range d.Panels {
			p := &d.Panels[i]
			where := d.File + ": " + p.Title
			if p.ID < 1 || ids[p.ID] {
				t.Errorf("%s: id %d", where, p.ID)
			}
			ids[p.ID] = true
			g := p.GridPos
			if p.Title == "" || g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
				t.Errorf("%s: place %+v", where, g)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s lies over %s", where, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			if p.Type == "row" {
				names = map[string]bool{}
				continue
			}
			if names[p.Title] {
				t.Errorf("%s: twice in its row", where)
			}
			names[p.Title] = true
			if p.Description == "" {
				t.Errorf("%s does not say what is seen", where)
			}
			if !slices.Contains([]string{"stat", "timeseries", "table", "heatmap", "state-timeline"}, p.Type) {
				t.Errorf("%s: type %s", where, p.Type)
			}
			if len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" || p.Datasource.Type != "prometheus" {
				t.Errorf("%s: asks for nothing, or a data source that is given", where)
			}
			refs := map[string]bool{}
			for _, q := range p.Targets {
				if refs[q.RefID] || q.Datasource.UID != "${datasource}" || q.Instant == q.Range {
					t.Errorf("%s: %+v", where, q)
				}
				refs[q.RefID] = true
				if wants := map[string]string{"table": "table", "heatmap": "heatmap"}[p.Type]; wants != "" && q.Format != wants {
					t.Errorf("%s: format %s", where, q.Format)
				}
			}
			for _, m := range regexp.MustCompile(`/d/([a-z-]+)`).FindAllStringSubmatch(string(p.Raw), -1) {
				if !uids[m[1]] {
					t.Errorf("%s leads to %s, which is not there", where, m[1])
				}
			}
		}
	}
}

// Each query asks for metrics and labels that there are, by variables that are defined; its
// legend names labels that its series have.
func TestQueries(t *testing.T) {
	catalog := monitoringtest.Catalog(t)
	for _, d := range monitoringtest.Dashboards(t) {
		known := []string{"datasource", "__rate_interval", "__range"}
		used := map[string]bool{}
		for _, v := range d.Templating.List {
			known = append(known, v.Name)
			if v.Type == "datasource" {
				continue
			}
			selector, label, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(v.Definition, "label_values("), ")"), ", ")
			if i := strings.LastIndex(selector, ", "); i >= 0 { // a comma of the selector
				selector, label = v.Definition[len("label_values("):strings.LastIndex(v.Definition, ", ")], v.Definition[strings.LastIndex(v.Definition, ", ")+2:len(v.Definition)-1]
			}
			if labels := monitoringtest.CheckUses(t, catalog, d.File+" $"+v.Name, selector); !ok || !slices.Contains(labels, label) {
				t.Errorf("%s: variable %s: %s", d.File, v.Name, v.Definition)
			}
		}
		variable := regexp.MustCompile(`\$\{?([a-zA-Z_]+)`)
		for i := range d.Panels {
			p := &d.Panels[i]
			for _, q := range p.Targets {
				where := fmt.Sprintf("%s: %s", d.File, p.Title)
				labels := monitoringtest.CheckUses(t, catalog, where, q.Expr)
				for _, m := range variable.FindAllStringSubmatch(q.Expr, -1) {
					used[m[1]] = true
					if !slices.Contains(known, m[1]) {
						t.Errorf("%s: there is no variable %s", where, m[1])
					}
				}
				_, grouping := monitoringtest.Uses(q.Expr)
				for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.LegendFormat, -1) {
					if !slices.Contains(grouping, m[1]) || !slices.Contains(labels, m[1]) {
						t.Errorf("%s: its legend names %s, by which %s does not group", where, m[1], q.Expr)
					}
				}
			}
		}
		for _, v := range d.Templating.List {
			chained := slices.ContainsFunc(d.Templating.List, func(o monitoringtest.Variable) bool { return strings.Contains(o.Definition, "$"+v.Name) })
			if v.Name != "datasource" && !used[v.Name] && !chained {
				t.Errorf("%s: nothing asks for the variable %s", d.File, v.Name)
			}
		}
	}
}

// Prometheus can read each query.
func TestPromtoolReadsTheQueries(t *testing.T) {
	promtool := monitoringtest.Program(t, "promtool")
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var all []rule
	for _, d := range monitoringtest.Dashboards(t) {
		for i := range d.Panels {
			for _, q := range d.Panels[i].Targets {
				all = append(all, rule{fmt.Sprintf("q%d", len(all)), monitoringtest.Filled(q.Expr, nil, "5m", "1h")})
			}
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "queries", "rules": all}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", "--lint=none", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if len(all) < 80 {
		t.Errorf("%d queries", len(all))
	}
}

package monitoring_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/deploy/monitoring"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The folder contains exactly the generator's files.
func TestFiles(t *testing.T) {
	files, err := monitoring.Dashboards()
	if err != nil {
		t.Fatal(err)
	}
	const folder = "../chart/kernosis/files/dashboards/"
	there, err := filepath.Glob(folder + "*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range there {
		if name := filepath.Base(path); files[name] == nil {
			t.Errorf("%s: not a generated dashboard", path)
		}
	}
	for name, want := range files {
		got, err := os.ReadFile(folder + name)
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is out of date: make generate-deploy", name)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, got, "", "  "); err != nil || indented.String() != string(got) {
			t.Errorf("%s is not formatted: %v", name, err)
		}
	}
}

// Each dashboard has what Grafana needs, few visible panels, no overlaps, and links to another
// dashboard.
func TestDashboards(t *testing.T) {
	all := readDashboards(t)
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
		if len(d.Links) != 2 || d.Links[0].Type != "dashboards" || !d.Links[0].KeepTime {
			t.Errorf("%s: no way to the others", d.File)
		}
	}
	for _, d := range all {
		checkPlaces(t, d)
		inView := map[string]int{}
		for i := range d.Panels {
			p := &d.Panels[i]
			if p.Type == "row" {
				continue
			}
			if p.Row == "" {
				inView[p.Type]++
				inView["all"]++
			}
			checkPanel(t, d.File+": "+p.Title, p)
			for _, m := range regexp.MustCompile(`/d/([a-z-]+)`).FindAllStringSubmatch(string(p.Raw), -1) {
				if !uids[m[1]] {
					t.Errorf("%s: %s leads to %s, which is not there", d.File, p.Title, m[1])
				}
			}
		}
		if inView["all"] > 12 || inView["stat"] == 0 || inView["table"] == 0 {
			t.Errorf("%s: panels in view: %v, want at most 12", d.File, inView)
		}
	}
}

// checkPlaces checks ids, positions and titles. A collapsed row has a grid of its own.
func checkPlaces(t *testing.T, d *dashboard) {
	t.Helper()
	ids, names := map[int]bool{}, map[string]bool{}
	taken := map[string]string{}
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
				at := fmt.Sprint(p.Row, x, " ", y)
				if other := taken[at]; other != "" {
					t.Fatalf("%s overlaps %s", where, other)
				}
				taken[at] = p.Title
			}
		}
		switch {
		case p.Type == "row":
			names = map[string]bool{}
		case names[p.Title]:
			t.Errorf("%s: duplicate title in its row", where)
		default:
			names[p.Title] = true
		}
	}
}

// checkPanel checks a panel's texts and queries.
func checkPanel(t *testing.T, where string, p *panel) {
	t.Helper()
	if p.Type == "text" {
		if !strings.Contains(p.Options.Content, "kubectl ") {
			t.Errorf("%s: no command: %q", where, p.Options.Content)
		}
		return
	}
	defaults := p.FieldConfig.Defaults
	if p.Description == "" || !strings.HasSuffix(p.Description, ".") || defaults.Unit == "" || defaults.NoValue == "" {
		t.Errorf("%s: description %q, unit %q, text without data %q", where, p.Description, defaults.Unit, defaults.NoValue)
	}
	if (defaults.Decimals != nil) != (defaults.Unit == "none") || defaults.Decimals != nil && *defaults.Decimals != 0 {
		t.Errorf("%s: want 0 decimals exactly with the unit none", where)
	}
	if !slices.Contains([]string{"stat", "timeseries", "table", "heatmap", "state-timeline"}, p.Type) {
		t.Errorf("%s: type %s", where, p.Type)
	}
	if len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" || p.Datasource.Type != "prometheus" {
		t.Errorf("%s: no query, or not the data source of the variable", where)
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
		if p.Type == "timeseries" && q.LegendFormat == "" {
			t.Errorf("%s: no legend", where)
		}
	}
}

// Links to the documentation point to existing pages.
func TestLinksToPages(t *testing.T) {
	n := 0
	for _, d := range readDashboards(t) {
		for i := range d.Panels {
			for _, m := range regexp.MustCompile(`"https://github\.com/kernosis/kernosis/blob/main/docs/([A-Za-z/-]+\.md)"|\(https://github\.com/kernosis/kernosis/blob/main/docs/([a-z]+\.md)\)`).FindAllStringSubmatch(string(d.Panels[i].Raw), -1) {
				n++
				readFile(t, "docs/"+m[1]+m[2])
			}
		}
	}
	if n < 40 {
		t.Errorf("%d links", n)
	}
}

// The tables of alerts link each alert to the page in its annotation.
func TestTablesOfAlertsLinkToRunbooks(t *testing.T) {
	var exprs []string
	for _, d := range readDashboards(t) {
		before := len(exprs)
		for i := range d.Panels {
			p := &d.Panels[i]
			if p.Title != "Firing alerts" {
				continue
			}
			exprs = append(exprs, p.Targets[0].Expr)
			if !strings.Contains(string(p.Raw), `/docs/${__data.fields.Folder}/${__data.fields.Runbook}.md"`) {
				t.Errorf("%s: no link to runbooks", d.File)
			}
		}
		if len(exprs) != before+1 || len(d.Annotations.List) != 1 || !strings.Contains(d.Annotations.List[0].Expr, `ALERTS{cluster=~"$cluster", app="kernosis"`) {
			t.Errorf("%s: no table of alerts, or no annotation", d.File)
		}
	}
	replacement := regexp.MustCompile(`"(folder|page)", "([^"]*)", "alertname", "([^"]*)"`)
	each(shipped(t), func(_ string, a *monitoring.Alert) {
		for _, expr := range exprs {
			labels := map[string]string{}
			for _, m := range replacement.FindAllStringSubmatch(expr, -1) {
				if re := regexp.MustCompile("^(?:" + m[3] + ")$"); re.MatchString(a.Alert) {
					labels[m[1]] = re.ReplaceAllString(a.Alert, m[2])
				}
			}
			if page := "/docs/" + labels["folder"] + "/" + labels["page"] + ".md"; !strings.HasSuffix(a.Annotations["runbook_url"], page) {
				t.Errorf("%s: links to %s, its runbook is %s", a.Alert, page, a.Annotations["runbook_url"])
			}
		}
	})
}

// Each query uses existing metrics and labels, and defined variables, including the cluster; its
// legend uses labels that its series have.
func TestQueries(t *testing.T) {
	catalog := readCatalog(t)
	for _, d := range readDashboards(t) {
		known := []string{"datasource", "__rate_interval", "__range"}
		used := map[string]bool{}
		inCluster := func(where, expr string) {
			uses, _ := usesOf(expr)
			for _, u := range uses {
				if !slices.Contains(u.Labels, "cluster") {
					t.Errorf("%s: %s does not select the cluster", where, u.Metric)
				}
			}
		}
		for _, a := range d.Annotations.List {
			checkUses(t, catalog, d.File+" annotation", a.Expr)
			inCluster(d.File+" annotation", a.Expr)
		}
		for _, v := range d.Templating.List {
			known = append(known, v.Name)
			if v.Type == "datasource" {
				continue
			}
			m := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(v.Definition)
			if m == nil {
				t.Fatalf("%s: variable %s: %s", d.File, v.Name, v.Definition)
			}
			selector, label := m[1], m[2]
			if v.Name != "cluster" {
				inCluster(d.File+" $"+v.Name, selector)
			}
			if labels := checkUses(t, catalog, d.File+" $"+v.Name, selector); !slices.Contains(labels, label) {
				t.Errorf("%s: variable %s: %s", d.File, v.Name, v.Definition)
			}
		}
		reference := regexp.MustCompile(`\$\{?([a-zA-Z_]+)`)
		for i := range d.Panels {
			p := &d.Panels[i]
			for _, q := range p.Targets {
				where := fmt.Sprintf("%s: %s", d.File, p.Title)
				labels := checkUses(t, catalog, where, q.Expr)
				inCluster(where, q.Expr)
				for _, m := range reference.FindAllStringSubmatch(q.Expr, -1) {
					used[m[1]] = true
					if !slices.Contains(known, m[1]) {
						t.Errorf("%s: there is no variable %s", where, m[1])
					}
				}
				_, grouping := usesOf(q.Expr)
				for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.LegendFormat, -1) {
					if !slices.Contains(grouping, m[1]) || !slices.Contains(labels, m[1]) {
						t.Errorf("%s: the legend uses %s, but %s does not group by it", where, m[1], q.Expr)
					}
				}
			}
		}
		for _, v := range d.Templating.List {
			chained := slices.ContainsFunc(d.Templating.List, func(o variable) bool { return strings.Contains(o.Definition, "$"+v.Name) })
			if v.Name != "datasource" && !used[v.Name] && !chained {
				t.Errorf("%s: no query uses the variable %s", d.File, v.Name)
			}
		}
	}
}

// valueTest is what a panel shows at 66m with some series, a sample a minute.
type valueTest struct {
	series map[string]string
	want   int
}

// checkValues checks the sum of what the first query of a dashboard's panel returns for node n7.
func checkValues(t *testing.T, dashboard, title string, cases []valueTest) {
	t.Helper()
	promtool, expr := testenv.FindProgram(t, "promtool"), ""
	for _, d := range readDashboards(t) {
		for i := range d.Panels {
			if p := &d.Panels[i]; p.Title == title && d.File == dashboard {
				expr = "sum(" + filled(p.Targets[0].Expr, map[string]string{"node": "n7"}, "5m", "1h") + ")"
			}
		}
	}
	var tests []map[string]any
	for _, c := range cases {
		var input []map[string]string
		for series, values := range c.series {
			input = append(input, map[string]string{"series": series, "values": values})
		}
		tests = append(tests, map[string]any{
			"name": fmt.Sprint(c.series), "interval": "1m", "input_series": input,
			"promql_expr_test": []any{map[string]any{"expr": expr, "eval_time": "66m", "exp_samples": []any{map[string]any{"labels": "{}", "value": c.want}}}},
		})
	}
	text, err := yaml.Marshal(map[string]any{"evaluation_interval": "1m", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The increase of a counter contains its first count, and what it counted since the agent restarted.
// A failed scrape adds nothing.
func TestIncreases(t *testing.T) {
	var cases []valueTest
	for values, lost := range map[string]int{"0x9 7x100": 7, "_x9 7x100": 7, "2x9 7x100": 5, "9x60 2x100": 2, "9x59 stale _x3 2x100": 2, "7x5 stale 7x100": 0, "7x9 7x100": 0} {
		cases = append(cases, valueTest{map[string]string{`kernosis_records_lost_total{node="n7", stem="oomkill"}`: values}, lost})
	}
	checkValues(t, "node.json", "Lost records", cases)
	const requested = `kernosis_trigger_diagnoses_total{trigger="disk", outcome="made"}`
	checkValues(t, "diagnosis.json", "Requested Diagnoses", []valueTest{{map[string]string{requested: "_x64 2x9"}, 2}, {map[string]string{requested: "1x63 4x9"}, 3}})
}

// The time since the last renewal of the Lease is the agent's age until it first renews.
func TestTimeSinceRenewal(t *testing.T) {
	const of = `{job="kernosis-agent", instance="i", node="n7"`
	all := map[string]string{`process_start_time_seconds` + of + `}`: "360x70", `kernosis_api_writes_total` + of + `, object="lease"}`: "0x70"}
	renewed := maps.Clone(all)
	renewed[`kernosis_api_last_acknowledged_timestamp_seconds`+of+`, object="lease"}`] = "3900x70"
	checkValues(t, "node.json", "Last Lease renewal", []valueTest{{all, 3600}, {renewed, 60}})
}

// Prometheus can parse each query.
func TestPromtoolReadsTheQueries(t *testing.T) {
	promtool := testenv.FindProgram(t, "promtool")
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var all []rule
	for _, d := range readDashboards(t) {
		for i := range d.Panels {
			for _, q := range d.Panels[i].Targets {
				all = append(all, rule{fmt.Sprintf("q%d", len(all)), filled(q.Expr, nil, "5m", "1h")})
			}
		}
		for _, a := range d.Annotations.List {
			all = append(all, rule{fmt.Sprintf("q%d", len(all)), filled(a.Expr, nil, "5m", "1h")})
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

// The cluster variable selects the series of a cluster; "All" includes series without the label.
func TestClusterVariable(t *testing.T) {
	promtool := testenv.FindProgram(t, "promtool")
	var expr string
	for _, d := range readDashboards(t) {
		for i := range d.Panels {
			if d.File == "fleet.json" && d.Panels[i].Title == "Agents" && d.Panels[i].Type == "stat" {
				expr = d.Panels[i].Targets[0].Expr
			}
		}
	}
	type sample struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	}
	var cases []map[string]any
	for cluster, agents := range map[string]float64{".*": 4, "east": 2, "(east|west)": 3} {
		query := filled(expr, map[string]string{"cluster": cluster}, "5m", "1h")
		cases = append(cases, map[string]any{"expr": query, "eval_time": "1m", "exp_samples": []sample{{"{}", agents}}})
	}
	series := []map[string]string{}
	for _, labels := range []string{`node="a"`, `node="a", cluster="east"`, `node="b", cluster="east"`, `node="a", cluster="west"`} {
		series = append(series, map[string]string{"series": "kernosis_build_info{" + labels + "}", "values": "1 1"})
	}
	text, err := yaml.Marshal(map[string]any{"tests": []map[string]any{{"interval": "1m", "input_series": series, "promql_expr_test": cases}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

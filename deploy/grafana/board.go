package grafana

import "regexp"

// board is a dashboard as these files define it.
type board struct {
	uid, title, description string
	alerts                  string // matchers of the alerts that the dashboard shows, besides the product's
	variables               []variable
	rows                    []row // the first one is open, the others are collapsed
}

// row is a heading with panels below it.
type row struct {
	title  string
	panels []graph
}

// variable is one that people choose; its values are those of a label.
type variable struct {
	name, label string
	metric, of  string // selector and label
	many        bool   // several, or all, may be chosen
}

// kind is the type of a panel.
type kind string

const (
	stat      kind = "stat"
	lines     kind = "timeseries"
	bars      kind = "bars" // a timeseries of bars
	states    kind = "state-timeline"
	heat      kind = "heatmap"
	rowsOf    kind = "table"
	words     kind = "text"
	schema         = 39 // of Grafana 11
	fullWidth      = 24
)

// graph is a panel as these files define it.
type graph struct {
	kind        kind
	title, text string // text says what the panel shows and what is normal; of words it is the content
	w, h        int    // 0: those of its kind
	unit        string // empty: a number of things
	none        string // shown where there is no data; empty: "No data"
	page        string // of docs, which explains the panel: "problems/RecordsLost"
	queries     []query
	warn, crit  float64 // thresholds; 0: none
	badBelow    bool    // the thresholds are for what is too little: green from warn on
	mappings    []any
	stack       bool
	links       []dataLink
	names       map[string]string // of a table's columns; "" leaves one out
	hidden      []string          // columns that only links use
	value       string            // name of a table's column of values; empty: left out
}

// query is one of a panel's.
type query struct{ expr, legend string }

func one(expr, legend string) []query { return []query{{expr, legend}} }

func prometheus() *source { return &source{Type: "prometheus", UID: "${datasource}"} }

// inCluster adds the cluster variable to each selector of an expression. Where no series has the
// label cluster, the variable's only value is all of them, which an absent label matches too.
func inCluster(expr string) string {
	const metric = `\b(ALERTS|(?:kernosis|problem|process|workqueue|controller_runtime|rest_client|leader_election)_[a-z_]+)\b(\{)?`
	return regexp.MustCompile(metric).ReplaceAllStringFunc(expr, func(found string) string {
		if name, open := trimBrace(found); open {
			return name + `{cluster=~"$cluster", `
		}
		return found + `{cluster=~"$cluster"}`
	})
}

func trimBrace(s string) (name string, open bool) {
	if n := len(s) - 1; s[n] == '{' {
		return s[:n], true
	}
	return s, false
}

// dashboard makes what Grafana reads.
func (b *board) dashboard() *dashboard {
	d := &dashboard{
		Annotations: list{List: []any{b.annotation()}}, Description: b.description, Editable: true, GraphTooltip: 1, Refresh: "30s", SchemaVersion: schema,
		Tags: []string{"kernosis"}, Time: timeRange{From: "now-3h", To: "now"}, Timezone: "browser", Title: b.title, UID: b.uid, Version: 1,
		Links: []link{
			{Icon: "external link", IncludeVars: true, KeepTime: true, Tags: []string{"kernosis"}, Title: "Kernosis", Type: "dashboards", AsDropdown: true},
			{Icon: "doc", Tags: []string{}, TargetBlank: true, Title: "Documentation", Type: "link", URL: docs + "monitoring.md"},
		},
		Templating: list{List: []any{map[string]any{
			"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1, "regex": "", "hide": 0,
			"multi": false, "includeAll": false, "current": map[string]any{}, "options": []any{},
		}}},
	}
	cluster := variable{name: "cluster", label: "Cluster", metric: "kernosis_build_info", of: "cluster", many: true}
	d.Templating.List = append(d.Templating.List, cluster.json(cluster.metric))
	for _, v := range b.variables {
		d.Templating.List = append(d.Templating.List, v.json(inCluster(v.metric)))
	}
	d.Panels = b.panels()
	return d
}

// panels flow from left to right. Those of collapsed rows are inside their rows.
func (b *board) panels() []panel {
	var all []panel
	id, y := 0, 0
	next := func() int { id++; return id }
	for i, r := range b.rows {
		collapsed := i > 0
		heading := panel{Type: "row", Title: r.title, ID: next(), GridPos: place{H: 1, W: fullWidth, Y: y}, Collapsed: &collapsed, Panels: &[]panel{}}
		y++
		x, top, height := 0, y, 0
		var below []panel
		for j := range r.panels {
			p := r.panels[j].panel()
			if x+p.GridPos.W > fullWidth {
				x, top, height = 0, top+height, 0
			}
			p.ID, p.GridPos.X, p.GridPos.Y = next(), x, top
			x, height = x+p.GridPos.W, max(height, p.GridPos.H)
			below = append(below, p)
		}
		if collapsed {
			heading.Panels = &below
			all = append(all, heading)
			continue
		}
		all = append(append(all, heading), below...)
		y = top + height
	}
	return all
}

func (v *variable) json(selector string) map[string]any {
	definition := "label_values(" + selector + ", " + v.of + ")"
	m := map[string]any{
		"name": v.name, "label": v.label, "type": "query", "datasource": prometheus(), "definition": definition,
		"query":   map[string]any{"qryType": 1, "query": definition, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
		"refresh": 2, "sort": 1, "regex": "", "hide": 0, "multi": v.many, "includeAll": v.many,
		"current": map[string]any{}, "options": []any{},
	}
	if v.many {
		m["allValue"] = ".*"
		m["current"] = map[string]any{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}
	}
	return m
}

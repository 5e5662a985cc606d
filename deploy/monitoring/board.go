package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Dashboards returns the dashboards by file name.
func Dashboards() (map[string][]byte, error) {
	out := map[string][]byte{}
	for name, d := range map[string]*board{
		"fleet.json": fleet(), "node.json": node(), "probes.json": probes(), "diagnosis.json": diagnosis(), "kernosis.json": kernosis(),
	} {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false) // queries contain < and >
		enc.SetIndent("", "  ")
		if err := enc.Encode(d.dashboard()); err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", name, err)
		}
		out[name] = b.Bytes()
	}
	return out, nil
}

// board defines a dashboard.
type board struct {
	uid, title, description string
	alerts                  string // matchers of the alerts that the dashboard shows, in addition to the product's
	variables               []variable
	rows                    []row // the first one is open, the others collapsed
}

// row is a heading with panels below it.
type row struct {
	title  string
	panels []graph
}

// variable is a dashboard variable; its values are the values of a label.
type variable struct {
	name, label string
	metric, of  string // selector and label
	many        bool   // allows several values, or all
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
	schema         = 39 // schema version of Grafana 11
	fullWidth      = 24
)

// graph defines a panel.
type graph struct {
	kind        kind
	title, text string // text describes the panel and what is normal; for words it is the content
	w           int    // 0 for the default of the kind
	unit        string // empty for a count
	none        string // shown if there is no data; empty: "No data"
	page        string // page in docs that explains the panel: "problems/RecordsLost"
	queries     []query
	warn, crit  float64 // thresholds; 0 if there is none
	badBelow    bool    // low values are bad: green from warn on
	mappings    []any
	stack       bool
	links       []dataLink
	names       map[string]string // of a table's columns
	hidden      []string          // columns that are used only by links
	value       string            // name of a table's value column; empty to hide it
}

// query is a query of a panel.
type query struct{ expr, legend string }

func one(expr, legend string) []query { return []query{{expr, legend}} }

// object is a JSON object in Grafana's format.
type object = map[string]any

// dataLink is a link from a value or a panel.
type dataLink struct {
	TargetBlank bool   `json:"targetBlank,omitempty"`
	Title       string `json:"title"`
	URL         string `json:"url"`
}

func prometheus() object { return object{"type": "prometheus", "uid": "${datasource}"} }

// inCluster adds the cluster variable to each selector of an expression. If no series has the label
// cluster, the variable's only value is "all", which matches an absent label too.
func inCluster(expr string) string {
	const metric = `\b(ALERTS|(?:kernosis|problem|process|workqueue|controller_runtime|rest_client|leader_election)_[a-z_]+)\b(\{)?`
	return regexp.MustCompile(metric).ReplaceAllStringFunc(expr, func(found string) string {
		if name, open := strings.CutSuffix(found, "{"); open {
			return name + `{cluster=~"$cluster", `
		}
		return found + `{cluster=~"$cluster"}`
	})
}

// dashboard returns the dashboard in Grafana's format.
func (b *board) dashboard() object {
	cluster := variable{name: "cluster", label: "Cluster", metric: "kernosis_build_info", of: "cluster", many: true}
	variables := []object{{
		"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1, "regex": "", "hide": 0,
		"multi": false, "includeAll": false, "current": object{}, "options": []any{},
	}, cluster.json(cluster.metric)}
	for _, v := range b.variables {
		variables = append(variables, v.json(inCluster(v.metric)))
	}
	return object{
		"annotations": object{"list": []object{b.annotation()}}, "description": b.description, "editable": true, "refresh": "30s", "schemaVersion": schema,
		"graphTooltip": 1, // shared crosshair
		"tags":         []string{"kernosis"}, "time": object{"from": "now-3h", "to": "now"}, "timepicker": object{}, "timezone": "browser",
		"title": b.title, "uid": b.uid, "version": 1, "templating": object{"list": variables}, "panels": b.panels(),
		"links": []object{
			{
				"asDropdown": true, "icon": "external link", "includeVars": true, "keepTime": true, "tags": []string{"kernosis"}, "targetBlank": false,
				"title": "Kernosis", "type": "dashboards", "url": "",
			},
			{
				"asDropdown": false, "icon": "doc", "includeVars": false, "keepTime": false, "tags": []string{}, "targetBlank": true,
				"title": "Documentation", "type": "link", "url": Docs + "monitoring.md",
			},
		},
	}
}

// panels lays out the panels from left to right. Panels of collapsed rows are inside their rows.
func (b *board) panels() []object {
	var all []object
	id, y := 0, 0
	next := func() int { id++; return id }
	for i, r := range b.rows {
		heading := object{"type": "row", "title": r.title, "id": next(), "gridPos": place(0, y, fullWidth, 1), "collapsed": i > 0}
		y++
		x, top, height := 0, y, 0
		var below []object
		for j := range r.panels {
			w, h := r.panels[j].size()
			if x+w > fullWidth {
				x, top, height = 0, top+height, 0
			}
			p := r.panels[j].panel()
			p["id"], p["gridPos"] = next(), place(x, top, w, h)
			x, height = x+w, max(height, h)
			below = append(below, p)
		}
		if i > 0 {
			heading["panels"] = below
			all = append(all, heading)
			continue
		}
		heading["panels"] = []object{}
		all = append(append(all, heading), below...)
		y = top + height
	}
	return all
}

func place(x, y, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }

func (v *variable) json(selector string) object {
	definition := "label_values(" + selector + ", " + v.of + ")"
	m := object{
		"name": v.name, "label": v.label, "type": "query", "datasource": prometheus(), "definition": definition,
		"query":   object{"qryType": 1, "query": definition, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
		"refresh": 2, "sort": 1, "regex": "", "hide": 0, "multi": v.many, "includeAll": v.many,
		"current": object{}, "options": []any{},
	}
	if v.many {
		m["allValue"] = ".*"
		m["current"] = object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}
	}
	return m
}

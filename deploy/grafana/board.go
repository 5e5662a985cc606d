package grafana

// board is a dashboard as these files say it.
type board struct {
	uid, title, description string
	variables               []variable
	rows                    []row
}

// row is a line across with panels below it.
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
	stat     kind = "stat"
	lines    kind = "timeseries"
	bars     kind = "bars" // a timeseries of bars
	states   kind = "state-timeline"
	heat     kind = "heatmap"
	rowsOf   kind = "table"
	schema        = 39 // of Grafana 11
	fullLine      = 24 // width of a dashboard
)

// graph is a panel as these files say it.
type graph struct {
	kind        kind
	title, text string // text says what is seen, and what is usual
	w, h        int    // 0: those of its kind
	unit        string
	queries     []query
	warn, crit  float64 // thresholds; 0: none
	badBelow    bool    // the thresholds are for what is too little: green from warn on
	mappings    []any
	stack       bool
	links       []dataLink
	names       map[string]string // of a table's columns; "" leaves one out
	value       string            // name of a table's column of values; empty: left out
}

// query is one of a panel's.
type query struct{ expr, legend string }

func one(expr, legend string) []query { return []query{{expr, legend}} }

func prometheus() *source { return &source{Type: "prometheus", UID: "${datasource}"} }

// dashboard makes what Grafana reads: panels flow from left to right.
func (b *board) dashboard() *dashboard {
	d := &dashboard{
		Annotations: list{List: []any{}}, Description: b.description, Editable: true, GraphTooltip: 1, Refresh: "30s", SchemaVersion: schema,
		Tags: []string{"kernosis"}, Time: timeRange{From: "now-3h", To: "now"}, Timezone: "browser", Title: b.title, UID: b.uid, Version: 1,
		Links: []link{{
			Icon: "external link", IncludeVars: true, KeepTime: true, Tags: []string{"kernosis"}, Title: "Kernosis", Type: "dashboards", AsDropdown: true,
		}},
		Templating: list{List: []any{map[string]any{
			"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1, "regex": "", "hide": 0,
			"multi": false, "includeAll": false, "current": map[string]any{}, "options": []any{},
		}}},
	}
	for _, v := range b.variables {
		d.Templating.List = append(d.Templating.List, v.json())
	}
	id, y := 0, 0
	next := func() int { id++; return id }
	for _, r := range b.rows {
		collapsed := false
		d.Panels = append(d.Panels, panel{
			Type: "row", Title: r.title, ID: next(), GridPos: place{H: 1, W: fullLine, Y: y}, Collapsed: &collapsed, Panels: &[]panel{},
		})
		y++
		x, height := 0, 0
		for i := range r.panels {
			p := r.panels[i].panel()
			if x+p.GridPos.W > fullLine {
				x, y, height = 0, y+height, 0
			}
			p.ID, p.GridPos.X, p.GridPos.Y = next(), x, y
			x, height = x+p.GridPos.W, max(height, p.GridPos.H)
			d.Panels = append(d.Panels, p)
		}
		y += height
	}
	return d
}

func (v *variable) json() map[string]any {
	definition := "label_values(" + v.metric + ", " + v.of + ")"
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

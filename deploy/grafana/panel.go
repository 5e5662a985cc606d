package grafana

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// size is a panel's size where it has none of its own.
func (g *graph) size() (w, h int) {
	w, h = g.w, g.h
	if w == 0 {
		w = map[kind]int{stat: 4, rowsOf: 12}[g.kind]
	}
	if w == 0 {
		w = 8
	}
	if h == 0 {
		h = map[kind]int{stat: 4}[g.kind]
	}
	if h == 0 {
		h = 8
	}
	return w, h
}

func (g *graph) panel() panel {
	w, h := g.size()
	p := panel{Type: string(g.kind), Title: g.title, GridPos: place{W: w, H: h}}
	if g.kind == words {
		p.Options = map[string]any{"mode": "markdown", "content": g.text}
		return p
	}
	p.Description, p.Datasource, p.Options = g.text, prometheus(), g.options()
	p.FieldConfig = &fieldConfig{Defaults: g.defaults(), Overrides: []override{}}
	if g.kind == bars {
		p.Type = string(lines)
	}
	if g.page != "" {
		p.Links = []dataLink{{TargetBlank: true, Title: "Runbook", URL: docs + g.page + ".md"}}
	}
	for i, q := range g.queries {
		t := target{
			Datasource: prometheus(), EditorMode: "code", Expr: inCluster(q.expr), LegendFormat: q.legend, Format: "time_series", Range: true,
			RefID: string(rune('A' + i)),
		}
		switch g.kind {
		case heat:
			t.Format, t.LegendFormat = "heatmap", "{{le}}"
		case rowsOf:
			t.Format, t.Instant, t.Range = "table", true, false
		}
		p.Targets = append(p.Targets, t)
	}
	if g.kind == rowsOf {
		g.columns(&p)
	}
	return p
}

// columns names the columns of a table. Nodes, pods and alerts in it link to their dashboards and
// pages.
func (g *graph) columns(p *panel) {
	exclude, rename := map[string]any{"Time": true}, map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(g.names)) {
		if as := g.names[name]; as != "" {
			rename[name] = as
		} else {
			exclude[name] = true
		}
	}
	if g.value == "" {
		exclude["Value"] = true
	} else {
		rename["Value"] = g.value
	}
	p.Transformations = []transform{{ID: "organize", Options: map[string]any{"excludeByName": exclude, "indexByName": g.order(), "renameByName": rename}}}
	set := func(column, id string, value any) {
		p.FieldConfig.Overrides = append(p.FieldConfig.Overrides, override{
			Matcher: matcher{ID: "byName", Options: column}, Properties: []property{{ID: id, Value: value}},
		})
	}
	for _, to := range []struct {
		column string
		link   dataLink
	}{{"node", nodeLink("${__value.text}")}, {"page", runbookLink()}, {"pod", podLink()}} {
		if name, ok := rename[to.column].(string); ok {
			set(name, "links", []dataLink{to.link})
		}
	}
	for _, column := range g.hidden {
		set(column, "custom.hidden", true)
	}
}

// order is that of a table's columns, the most important first.
func (g *graph) order() map[string]any {
	out := map[string]any{}
	for _, column := range []string{
		"severity", "alertname", "cluster", "node", "namespace", "pod", "container", "probe_type", "service", "type", "part", "policy", "verb",
		"operation", "outcome", "reason", "subject", "page", "folder",
	} {
		if g.names[column] != "" {
			out[column] = len(out)
		}
	}
	return out
}

func (g *graph) defaults() fieldDefaults {
	zero := 0.0
	d := fieldDefaults{
		Color: map[string]any{"mode": "palette-classic"}, Links: g.links, Mappings: g.mappings, NoValue: cmp.Or(g.none, "No data"), Unit: g.unit,
		Thresholds: thresholds{Mode: "absolute", Steps: g.steps()},
	}
	if g.unit == "" { // a number of things: increase() gives parts of them
		whole := 0
		d.Unit, d.Decimals = "none", &whole
	}
	if d.Mappings == nil {
		d.Mappings = []any{}
	}
	switch g.kind {
	case stat:
		d.Color = map[string]any{"mode": "thresholds"}
	case lines, bars:
		d.Min = &zero
		stacking := "none"
		if g.stack || g.kind == bars {
			stacking = "normal"
		}
		d.Custom = map[string]any{
			"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "auto", "pointSize": 4, "spanNulls": false,
			"stacking": map[string]any{"group": "A", "mode": stacking}, "thresholdsStyle": map[string]any{"mode": "off"},
		}
		if g.kind == bars {
			d.Custom["drawStyle"], d.Custom["fillOpacity"] = "bars", 60
		}
		if g.warn != 0 || g.crit != 0 {
			d.Custom["thresholdsStyle"] = map[string]any{"mode": "dashed"}
		}
	case states:
		d.Color = map[string]any{"mode": "thresholds"}
		d.Custom = map[string]any{"fillOpacity": 70, "lineWidth": 0, "spanNulls": false}
	case rowsOf:
		d.Custom = map[string]any{"align": "auto", "filterable": true, "cellOptions": map[string]any{"type": "auto"}}
	}
	return d
}

func (g *graph) steps() []step {
	at := func(v float64) *float64 { return &v }
	if g.badBelow {
		return []step{{Color: "red"}, {Color: "green", Value: at(g.warn)}}
	}
	s := []step{{Color: "green"}}
	if g.warn != 0 {
		s = append(s, step{Color: "orange", Value: at(g.warn)})
	}
	if g.crit != 0 {
		s = append(s, step{Color: "red", Value: at(g.crit)})
	}
	return s
}

func (g *graph) options() map[string]any {
	legend := map[string]any{"displayMode": "table", "placement": "bottom", "showLegend": g.legend(), "calcs": []string{"lastNotNull", "max"}}
	switch g.kind {
	case stat:
		return map[string]any{
			"colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto", "textMode": "auto", "wideLayout": true,
			"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		}
	case states:
		return map[string]any{
			"alignValue": "left", "mergeValues": true, "rowHeight": 0.9, "showValue": "auto",
			"legend":  map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": false},
			"tooltip": map[string]any{"mode": "single", "sort": "none"},
		}
	case heat:
		return map[string]any{
			"calculate": false, "cellGap": 1, "filterValues": map[string]any{"le": 1e-9}, "legend": map[string]any{"show": true},
			"color":     map[string]any{"mode": "scheme", "scheme": "Oranges", "scale": "exponential", "exponent": 0.5, "steps": 64, "fill": "dark-orange", "reverse": false},
			"rowsFrame": map[string]any{"layout": "auto"}, "showValue": "never", "exemplars": map[string]any{"color": "rgba(255,0,255,0.7)"},
			"tooltip": map[string]any{"mode": "single", "showColorScale": false, "yHistogram": false},
			"yAxis":   map[string]any{"axisPlacement": "left", "reverse": false, "unit": g.unit},
		}
	case rowsOf:
		return map[string]any{"cellHeight": "sm", "showHeader": true, "footer": map[string]any{"show": false, "reducer": []string{"sum"}, "countRows": false, "fields": ""}}
	}
	return map[string]any{"legend": legend, "tooltip": map[string]any{"mode": "multi", "sort": "desc"}}
}

// legend reports whether a panel needs one: a single series is what the title says.
func (g *graph) legend() bool {
	return len(g.queries) > 1 || strings.Contains(g.queries[0].legend, "{{")
}

// mapped is a mapping of numbers to words.
func mapped(words map[string][2]string) []any {
	options := map[string]any{}
	i := 0
	for _, number := range slices.Sorted(maps.Keys(words)) {
		options[number] = map[string]any{"color": words[number][1], "index": i, "text": words[number][0]}
		i++
	}
	return []any{map[string]any{"type": "value", "options": options}}
}

// nodeLink leads to a node's dashboard.
func nodeLink(node string) dataLink {
	return dataLink{Title: "Node", URL: "/d/" + uidNode + "?${datasource:queryparam}&${cluster:queryparam}&var-node=" + node + "&${__url_time_range}"}
}

// podLink leads from a pod in a table to its probes.
func podLink() dataLink {
	return dataLink{Title: "Probes", URL: "/d/" + uidProbes + "?${datasource:queryparam}&${cluster:queryparam}&var-namespace=${__data.fields.Namespace}&var-pod=${__value.text}&${__url_time_range}"}
}

// rise is by how much counters have grown. Unlike increase() it includes the first count of a
// counter that was absent before. It misses what was counted before a restart.
func rise(counter, within string) string {
	return "clamp_min(" + counter + " - (" + counter + " offset " + within + " or " + counter + " * 0), 0)"
}

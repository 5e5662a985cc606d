package grafana

import (
	"maps"
	"slices"
)

// size is a panel's where it does not say.
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
	p := panel{
		Type: string(g.kind), Title: g.title, Description: g.text, GridPos: place{W: w, H: h}, Datasource: prometheus(),
		FieldConfig: &fieldConfig{Defaults: g.defaults(), Overrides: []override{}}, Options: g.options(),
	}
	if g.kind == bars {
		p.Type = string(lines)
	}
	for i, q := range g.queries {
		t := target{
			Datasource: prometheus(), EditorMode: "code", Expr: q.expr, LegendFormat: q.legend, Format: "time_series", Range: true,
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

// columns names those of a table. Values of the node column lead to the node's dashboard.
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
	p.Transformations = []transform{{ID: "organize", Options: map[string]any{"excludeByName": exclude, "indexByName": map[string]any{}, "renameByName": rename}}}
	for column, to := range map[string]dataLink{"node": nodeLink("${__value.text}"), "pod": podLink()} {
		if name, ok := rename[column].(string); ok {
			p.FieldConfig.Overrides = append(p.FieldConfig.Overrides, override{
				Matcher:    matcher{ID: "byName", Options: name},
				Properties: []property{{ID: "links", Value: []dataLink{to}}},
			})
		}
	}
	slices.SortFunc(p.FieldConfig.Overrides, func(a, b override) int {
		if a.Matcher.Options < b.Matcher.Options {
			return -1
		}
		return 1
	})
}

func (g *graph) defaults() fieldDefaults {
	zero := 0.0
	d := fieldDefaults{
		Color: map[string]any{"mode": "palette-classic"}, Links: g.links, Mappings: g.mappings, Unit: g.unit,
		Thresholds: thresholds{Mode: "absolute", Steps: g.steps()},
	}
	if d.Mappings == nil {
		d.Mappings = []any{}
	}
	switch g.kind {
	case stat:
		d.Color, d.NoValue = map[string]any{"mode": "thresholds"}, "none"
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
	legend := map[string]any{"displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": []string{"lastNotNull", "max"}}
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
	return dataLink{Title: "Node", URL: "/d/" + uidNode + "?${datasource:queryparam}&var-node=" + node + "&${__url_time_range}"}
}

// podLink leads from a pod in a table to its probes.
func podLink() dataLink {
	return dataLink{Title: "Probes", URL: "/d/" + uidProbes + "?${datasource:queryparam}&var-namespace=${__data.fields.Namespace}&var-pod=${__value.text}&${__url_time_range}"}
}

// rise is how much counters have grown, those included that are not there before their first
// count: increase() does not see that one. What an agent or controller has counted since its
// start is the bound of what is missed by a restart.
func rise(counter, within string) string {
	return "clamp_min(" + counter + " - (" + counter + " offset " + within + " or " + counter + " * 0), 0)"
}

package monitoring

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// size returns the size of a panel.
func (g *graph) size() (w, h int) {
	w, h = 8, 8
	switch g.kind {
	case stat:
		w, h = 4, 4
	case rowsOf:
		w = 12
	}
	return cmp.Or(g.w, w), h
}

func (g *graph) panel() object {
	p := object{"type": g.kind, "title": g.title}
	if g.kind == words {
		p["options"] = object{"mode": "markdown", "content": g.text}
		return p
	}
	fields := object{"defaults": g.defaults(), "overrides": []object{}}
	p["description"], p["datasource"], p["options"], p["fieldConfig"] = g.text, prometheus(), g.options(), fields
	if g.kind == bars {
		p["type"] = lines
	}
	if g.page != "" {
		p["links"] = []dataLink{{TargetBlank: true, Title: "Runbook", URL: Docs + g.page + ".md"}}
	}
	var targets []object
	for i, q := range g.queries {
		t := object{
			"datasource": prometheus(), "editorMode": "code", "expr": inCluster(q.expr), "legendFormat": q.legend, "format": "time_series",
			"instant": false, "range": true, "refId": string(rune('A' + i)),
		}
		switch g.kind {
		case heat:
			t["format"], t["legendFormat"] = "heatmap", "{{le}}"
		case rowsOf:
			t["format"], t["instant"], t["range"] = "table", true, false
		}
		targets = append(targets, t)
	}
	p["targets"] = targets
	if g.kind == rowsOf {
		p["transformations"], fields["overrides"] = g.columns()
	}
	return p
}

// columns names the columns of a table and links nodes, pods and alerts in it to their dashboards
// and pages.
func (g *graph) columns() (transformations, overrides []object) {
	exclude, rename := object{"Time": true}, object{}
	for name, as := range g.names {
		rename[name] = as
	}
	if g.value == "" {
		exclude["Value"] = true
	} else {
		rename["Value"] = g.value
	}
	overrides = []object{}
	set := func(column, id string, value any) {
		overrides = append(overrides, object{"matcher": object{"id": "byName", "options": column}, "properties": []object{{"id": id, "value": value}}})
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
	return []object{{"id": "organize", "options": object{"excludeByName": exclude, "indexByName": g.order(), "renameByName": rename}}}, overrides
}

// order returns the order of a table's columns, most important first.
func (g *graph) order() object {
	out := object{}
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

func (g *graph) defaults() object {
	d := object{
		"color": object{"mode": "palette-classic"}, "mappings": []any{}, "noValue": cmp.Or(g.none, "No data"), "unit": g.unit,
		"thresholds": object{"mode": "absolute", "steps": g.steps()},
	}
	if g.unit == "" { // a number of things: show no decimals, although increase() returns fractions
		d["unit"], d["decimals"] = "none", 0
	}
	if g.mappings != nil {
		d["mappings"] = g.mappings
	}
	if len(g.links) > 0 {
		d["links"] = g.links
	}
	switch g.kind {
	case stat:
		d["color"] = object{"mode": "thresholds"}
	case lines, bars:
		stacking, style, opacity, thresholds := "none", "line", 10, "off"
		if g.stack || g.kind == bars {
			stacking = "normal"
		}
		if g.kind == bars {
			style, opacity = "bars", 60
		}
		if g.warn != 0 || g.crit != 0 {
			thresholds = "dashed"
		}
		d["min"] = 0
		d["custom"] = object{
			"drawStyle": style, "lineWidth": 1, "fillOpacity": opacity, "showPoints": "auto", "pointSize": 4, "spanNulls": false,
			"stacking": object{"group": "A", "mode": stacking}, "thresholdsStyle": object{"mode": thresholds},
		}
	case states:
		d["color"] = object{"mode": "thresholds"}
		d["custom"] = object{"fillOpacity": 70, "lineWidth": 0, "spanNulls": false}
	case rowsOf:
		d["custom"] = object{"align": "auto", "filterable": true, "cellOptions": object{"type": "auto"}}
	}
	return d
}

func (g *graph) steps() []object {
	if g.badBelow {
		return []object{{"color": "red", "value": nil}, {"color": "green", "value": g.warn}}
	}
	s := []object{{"color": "green", "value": nil}}
	if g.warn != 0 {
		s = append(s, object{"color": "orange", "value": g.warn})
	}
	if g.crit != 0 {
		s = append(s, object{"color": "red", "value": g.crit})
	}
	return s
}

func (g *graph) options() object {
	legend := object{"displayMode": "table", "placement": "bottom", "showLegend": g.legend(), "calcs": []string{"lastNotNull", "max"}}
	switch g.kind {
	case stat:
		return object{
			"colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto", "textMode": "auto", "wideLayout": true,
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		}
	case states:
		return object{
			"alignValue": "left", "mergeValues": true, "rowHeight": 0.9, "showValue": "auto",
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": false},
			"tooltip": object{"mode": "single", "sort": "none"},
		}
	case heat:
		return object{
			"calculate": false, "cellGap": 1, "filterValues": object{"le": 1e-9}, "legend": object{"show": true},
			"color":     object{"mode": "scheme", "scheme": "Oranges", "scale": "exponential", "exponent": 0.5, "steps": 64, "fill": "dark-orange", "reverse": false},
			"rowsFrame": object{"layout": "auto"}, "showValue": "never", "exemplars": object{"color": "rgba(255,0,255,0.7)"},
			"tooltip": object{"mode": "single", "showColorScale": false, "yHistogram": false},
			"yAxis":   object{"axisPlacement": "left", "reverse": false, "unit": g.unit},
		}
	case rowsOf:
		return object{"cellHeight": "sm", "showHeader": true, "footer": object{"show": false, "reducer": []string{"sum"}, "countRows": false, "fields": ""}}
	}
	return object{"legend": legend, "tooltip": object{"mode": "multi", "sort": "desc"}}
}

// legend reports whether a panel needs a legend: the title describes a single series.
func (g *graph) legend() bool {
	return len(g.queries) > 1 || strings.Contains(g.queries[0].legend, "{{")
}

// mapped returns a mapping of numbers to words.
func mapped(words map[string][2]string) []any {
	options := object{}
	i := 0
	for _, number := range slices.Sorted(maps.Keys(words)) {
		options[number] = object{"color": words[number][1], "index": i, "text": words[number][0]}
		i++
	}
	return []any{object{"type": "value", "options": options}}
}

// nodeLink returns a link to a node's dashboard.
func nodeLink(node string) dataLink {
	return dataLink{Title: "Node", URL: "/d/" + uidNode + "?${datasource:queryparam}&${cluster:queryparam}&var-node=" + node + "&${__url_time_range}"}
}

// podLink returns a link from a pod in a table to its probes.
func podLink() dataLink {
	return dataLink{Title: "Probes", URL: "/d/" + uidProbes + "?${datasource:queryparam}&${cluster:queryparam}&var-namespace=${__data.fields.Namespace}&var-pod=${__value.text}&${__url_time_range}"}
}

// rise returns an expression for the increase of counters. Unlike increase(), it includes the
// first count of a counter that was absent before, but it misses counts from before a restart. The
// sample at the start may be missing after a failed scrape, so it uses the latest sample of an
// hour.
func rise(counter, within string) string {
	return "(" + counter + " - (last_over_time(" + counter + "[1h] offset " + within + ") <= " + counter + " or " + counter + " * 0))"
}

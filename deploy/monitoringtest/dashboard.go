package monitoringtest

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// Dashboard holds the fields of a dashboard that tests check.
type Dashboard struct {
	File string `json:"-"`

	UID           string   `json:"uid"`
	Title         string   `json:"title"`
	Description   string   `json:"description"`
	SchemaVersion int      `json:"schemaVersion"`
	Tags          []string `json:"tags"`
	Panels        []Panel  `json:"panels"` // including those of collapsed rows, after their row
	Annotations   struct {
		List []struct {
			Expr string `json:"expr"`
		} `json:"list"`
	} `json:"annotations"`
	Links []struct {
		Type     string `json:"type"`
		KeepTime bool   `json:"keepTime"`
	} `json:"links"`
	Templating struct {
		List []Variable `json:"list"`
	} `json:"templating"`
}

// Variable is a variable of a dashboard.
type Variable struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Definition string `json:"definition"`
}

// Panel is a panel or a row of a dashboard.
type Panel struct {
	Raw json.RawMessage `json:"-"` // the complete JSON
	Row string          `json:"-"` // title of the collapsed row it is in; empty if it is visible at once

	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  Datasource `json:"datasource"`
	Targets     []Target   `json:"targets"`
	Panels      []Panel    `json:"panels"` // the panels of a collapsed row
	FieldConfig struct {
		Defaults struct {
			Unit     string `json:"unit"`
			Decimals *int   `json:"decimals"`
			NoValue  string `json:"noValue"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Options struct {
		Content string `json:"content"` // of a text panel
	} `json:"options"`
	GridPos struct {
		X int `json:"x"`
		Y int `json:"y"`
		W int `json:"w"`
		H int `json:"h"`
	} `json:"gridPos"`
}

// Datasource identifies the data source of a query.
type Datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Target is a query of a panel.
type Target struct {
	RefID        string     `json:"refId"`
	Datasource   Datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	Format       string     `json:"format"`
	Instant      bool       `json:"instant"`
	Range        bool       `json:"range"`
	LegendFormat string     `json:"legendFormat"`
}

// UnmarshalJSON also keeps the panel's complete JSON.
func (p *Panel) UnmarshalJSON(text []byte) error {
	type plain Panel
	if err := json.Unmarshal(text, (*plain)(p)); err != nil {
		return err
	}
	p.Raw = append(json.RawMessage(nil), text...)
	return nil
}

// dashboards is the folder of the dashboards that deploy/grafana generates.
const dashboards = "deploy/chart/kernosis/files/dashboards/"

// Dashboards returns all dashboards, ordered by file name.
func Dashboards(tb testing.TB) []*Dashboard {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(Root(tb), dashboards, "*.json"))
	if err != nil {
		tb.Fatal(err)
	}
	var all []*Dashboard
	for _, path := range files {
		d := &Dashboard{File: filepath.Base(path)}
		if err := json.Unmarshal([]byte(Read(tb, dashboards+d.File)), d); err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		d.flatten()
		all = append(all, d)
	}
	return all
}

// flatten moves the panels of collapsed rows after their rows.
func (d *Dashboard) flatten() {
	var all []Panel
	for _, p := range d.Panels {
		below := p.Panels
		p.Panels = nil
		all = append(all, p)
		for _, inner := range below {
			inner.Row = p.Title
			all = append(all, inner)
		}
	}
	d.Panels = all
}

// Filled returns a query as Grafana sends it, with values in place of its variables. A variable
// without a value matches everything.
func Filled(expr string, values map[string]string, rateInterval, within string) string {
	replace := []string{"$__rate_interval", rateInterval, "$__range", within}
	for _, name := range []string{"cluster", "node", "namespace", "probe_type", "pod"} {
		value, ok := values[name]
		if !ok {
			value = ".*"
		}
		replace = append(replace, "$"+name, value)
	}
	return strings.NewReplacer(replace...).Replace(expr)
}

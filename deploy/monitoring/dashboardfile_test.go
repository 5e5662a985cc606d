package monitoring_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// dashboard holds the fields of a dashboard that tests check.
type dashboard struct {
	File string `json:"-"`

	UID           string   `json:"uid"`
	Title         string   `json:"title"`
	Description   string   `json:"description"`
	SchemaVersion int      `json:"schemaVersion"`
	Tags          []string `json:"tags"`
	Panels        []panel  `json:"panels"` // including those of collapsed rows, after their row
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
		List []variable `json:"list"`
	} `json:"templating"`
}

// variable is a variable of a dashboard.
type variable struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Definition string `json:"definition"`
}

// panel is a panel or a row of a dashboard.
type panel struct {
	Raw json.RawMessage `json:"-"` // the complete JSON
	Row string          `json:"-"` // title of the collapsed row it is in; empty if it is visible at once

	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  datasource `json:"datasource"`
	Targets     []target   `json:"targets"`
	Panels      []panel    `json:"panels"` // the panels of a collapsed row
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

// datasource identifies the data source of a query.
type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// target is a query of a panel.
type target struct {
	RefID        string     `json:"refId"`
	Datasource   datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	Format       string     `json:"format"`
	Instant      bool       `json:"instant"`
	Range        bool       `json:"range"`
	LegendFormat string     `json:"legendFormat"`
}

// UnmarshalJSON also keeps the panel's complete JSON.
func (p *panel) UnmarshalJSON(text []byte) error {
	type plain panel
	if err := json.Unmarshal(text, (*plain)(p)); err != nil {
		return err
	}
	p.Raw = append(json.RawMessage(nil), text...)
	return nil
}

// dashboards is the folder of the dashboards that [monitoring.Dashboards] generates.
const dashboards = "deploy/chart/kernosis/files/dashboards/"

// readDashboards returns all dashboards, ordered by file name.
func readDashboards(tb testing.TB) []*dashboard {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(testenv.Checkout(tb), dashboards, "*.json"))
	if err != nil {
		tb.Fatal(err)
	}
	var all []*dashboard
	for _, path := range files {
		d := &dashboard{File: filepath.Base(path)}
		if err := json.Unmarshal([]byte(readFile(tb, dashboards+d.File)), d); err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		d.flatten()
		all = append(all, d)
	}
	return all
}

// flatten moves the panels of collapsed rows after their rows.
func (d *dashboard) flatten() {
	var all []panel
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

// filled returns a query as Grafana sends it, with values in place of its variables. A variable
// without a value matches everything.
func filled(expr string, values map[string]string, rateInterval, within string) string {
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

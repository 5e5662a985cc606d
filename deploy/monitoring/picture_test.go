package monitoring_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"html/template"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var pictures = flag.String("pictures", "", "folder that TestRealFaultsShow draws the dashboards into, with what its Prometheus has; needs Chromium")

// drawn holds the fields of a panel that only the picture needs.
type drawn struct {
	FieldConfig struct {
		Defaults struct {
			Custom     struct{ DrawStyle string }
			Thresholds struct {
				Steps []struct {
					Color string
					Value *float64
				}
			}
			Mappings []struct {
				Options map[string]struct{ Color, Text string }
			}
		}
	}
	Options         struct{ Legend struct{ ShowLegend bool } }
	Transformations []struct {
		Options struct {
			ExcludeByName map[string]bool
			IndexByName   map[string]int
			RenameByName  map[string]string
		}
	}
}

// shape is a line or a rectangle of a chart. Its coordinate system is 1000 wide and 100 high.
type shape struct {
	Points     string // of a line
	X, Y, W, H float64
	Color      string
	Text       string
}

// picture is the template's data for a panel.
type picture struct {
	Type, Title           string
	Column, Columns, Rows int
	Big, Color            string // of a stat
	Top                   string // the highest value of a chart
	Shapes                []shape
	Names                 []shape // legend
	Head                  []string
	Cells                 [][]string
	Text                  string
}

var palette = []string{"#5794f2", "#73bf69", "#ff9830", "#f2495c", "#b877d9", "#fade2a", "#8ab8ff", "#37872d", "#c4162a", "#e0b400"}

// colorOf returns Grafana's colour of a name in the dark theme.
func colorOf(name string) string {
	return cmp.Or(map[string]string{"green": "#73bf69", "orange": "#ff9830", "red": "#f2495c", "text": "#8e8e99"}[name], "#5794f2")
}

// draw writes a picture of the open panels of each dashboard.
func (s *stage) draw(t *testing.T, dir string) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range readDashboards(t) {
		var panels []picture
		var closed []string
		bottom := 0
		for i := range d.Panels {
			p := &d.Panels[i]
			switch {
			case p.Type == "row" && i > 0:
				closed = append(closed, p.Title)
			case p.Type != "row" && p.Row == "":
				panels = append(panels, s.picture(t, p))
				bottom = max(bottom, p.GridPos.Y+p.GridPos.H)
			}
		}
		page := filepath.Join(t.TempDir(), "page.html")
		var html bytes.Buffer
		if err := template.Must(template.New("").Parse(board)).Execute(&html, map[string]any{"Title": d.Title, "Node": s.node, "Panels": panels, "Closed": closed}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(page, html.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, "dashboard-"+strings.TrimSuffix(d.File, ".json")+".png")
		size := fmt.Sprintf("--window-size=1400,%d", 50+bottom*40+len(closed)*36)
		cmd := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--screenshot="+out, size, "file://"+page)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
}

// picture queries a panel's data and lays it out.
func (s *stage) picture(t *testing.T, p *panel) picture {
	var of drawn
	if err := json.Unmarshal(p.Raw, &of); err != nil {
		t.Fatal(err)
	}
	out := picture{Type: p.Type, Title: p.Title, Column: p.GridPos.X + 1, Columns: p.GridPos.W, Rows: p.GridPos.H}
	var all []series
	var names []string
	for _, q := range p.Targets {
		within := fmt.Sprintf("%ds", int(time.Since(s.began).Seconds())+1)
		got, err := s.query(t.Context(), filled(q.Expr, map[string]string{"node": s.node}, "10s", within), q.Range)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range got {
			names = append(names, regexp.MustCompile(`\{\{(\w+)\}\}`).ReplaceAllStringFunc(q.LegendFormat, func(l string) string { return one.Metric[strings.Trim(l, "{}")] }))
		}
		all = append(all, got...)
	}
	unit := p.FieldConfig.Defaults.Unit
	switch p.Type {
	case "text":
		out.Text = strings.ReplaceAll(p.Options.Content, "${node}", s.node)
		out.Text = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(strings.ReplaceAll(out.Text, "```\n", ""), "$1")
		out.Text = strings.ReplaceAll(out.Text, "```", "")
	case "stat":
		out.Big, out.Color = p.FieldConfig.Defaults.NoValue, colorOf("text")
		if len(all) > 0 {
			v, at := numbers(all[0], s.began)
			last := v[len(v)-1]
			out.Big, out.Color = valueText(last, unit), of.color(last)
			out.Shapes = []shape{{Points: points(v, at, slices.Max(v)), Color: out.Color}}
		}
	case "table":
		out.table(&of, all)
	case "state-timeline":
		out.states(&of, all, names, s.began)
	default:
		out.chart(&of, all, names, s.began, unit)
	}
	if p.Type != "text" && p.Type != "stat" && len(all) == 0 {
		out.Text = p.FieldConfig.Defaults.NoValue
	}
	return out
}

// color returns the color of a value according to the thresholds.
func (d *drawn) color(v float64) string {
	color := ""
	for _, s := range d.FieldConfig.Defaults.Thresholds.Steps {
		if s.Value == nil || v >= *s.Value {
			color = s.Color
		}
	}
	return colorOf(color)
}

// numbers returns the values of a series and their times, from 0 at the start of the test to 1000
// now.
func numbers(one series, began time.Time) (v, at []float64) {
	all := one.Values
	if len(all) == 0 {
		all = [][2]any{one.Value}
	}
	span := time.Since(began).Seconds()
	for _, pair := range all {
		text, _ := pair[1].(string)
		f, err := strconv.ParseFloat(text, 64)
		when, _ := pair[0].(float64)
		if err == nil && !math.IsNaN(f) {
			v, at = append(v, f), append(at, 1000*(when-float64(began.Unix()))/span)
		}
	}
	if len(v) == 0 {
		return []float64{0}, []float64{1000}
	}
	return v, at
}

func points(v, at []float64, top float64) string {
	var b strings.Builder
	for i := range v {
		fmt.Fprintf(&b, "%.1f,%.1f ", at[i], 96-90*v[i]/cmp.Or(top, 1))
	}
	return b.String()
}

func (p *picture) chart(of *drawn, all []series, names []string, began time.Time, unit string) {
	bars := of.FieldConfig.Defaults.Custom.DrawStyle == "bars"
	top := 0.0
	sums := map[float64]float64{} // of stacked bars
	for _, one := range all {
		v, at := numbers(one, began)
		for i := range v {
			sums[at[i]] += v[i]
			top = max(top, v[i])
		}
	}
	if bars {
		top = slices.Max(append(slices.Collect(maps.Values(sums)), 0))
	}
	base := map[float64]float64{}
	for i, one := range all {
		color := palette[i%len(palette)]
		v, at := numbers(one, began)
		if !bars {
			p.Shapes = append(p.Shapes, shape{Points: points(v, at, top), Color: color})
		}
		for k := range v {
			if bars && v[k] > 0 {
				h := 90 * v[k] / top
				p.Shapes = append(p.Shapes, shape{X: at[k], Y: 96 - base[at[k]] - h, W: 3, H: h, Color: color})
				base[at[k]] += h
			}
		}
		if of.Options.Legend.ShowLegend && i < 8 {
			p.Names = append(p.Names, shape{Color: color, Text: names[i]})
		}
	}
	p.Top = valueText(top, unit)
}

func (p *picture) states(of *drawn, all []series, names []string, began time.Time) {
	height := 100 / float64(max(1, len(all)))
	for i, one := range all {
		v, at := numbers(one, began)
		for k := range v {
			end := 1000.0
			if k+1 < len(v) {
				end = at[k+1]
			}
			state := struct{ Color, Text string }{Color: "blue"}
			for _, m := range of.FieldConfig.Defaults.Mappings {
				state = m.Options[strconv.Itoa(int(v[k]))]
			}
			p.Shapes = append(p.Shapes, shape{X: at[k], Y: float64(i)*height + height*.1, W: end - at[k], H: height * .8, Color: colorOf(state.Color)})
		}
		p.Names = append(p.Names, shape{Text: names[i], H: height})
	}
}

func (p *picture) table(of *drawn, all []series) {
	if len(of.Transformations) == 0 || len(all) == 0 {
		return
	}
	o := of.Transformations[0].Options
	columns := slices.SortedFunc(maps.Keys(o.IndexByName), func(a, b string) int { return cmp.Compare(o.IndexByName[a], o.IndexByName[b]) })
	columns = slices.DeleteFunc(columns, func(c string) bool { return o.ExcludeByName[c] || c == "folder" })
	for _, c := range columns {
		p.Head = append(p.Head, cmp.Or(o.RenameByName[c], c))
	}
	for _, one := range all[:min(len(all), 3*p.Rows/2-2)] {
		var row []string
		for _, c := range columns {
			row = append(row, one.Metric[c])
		}
		p.Cells = append(p.Cells, row)
	}
	slices.SortFunc(p.Cells, func(a, b []string) int { return slices.Compare(a, b) })
}

// valueText formats a value with its unit as Grafana does, for the units used in the dashboards.
func valueText(v float64, unit string) string {
	number := strconv.FormatFloat(v, 'g', 3, 64)
	switch unit {
	case "s":
		return number + " s"
	case "reqps", "cps", "ops":
		return number + "/s"
	case "bytes":
		return strconv.FormatFloat(v/(1<<20), 'f', 1, 64) + " MiB"
	case "percentunit":
		return strconv.FormatFloat(100*v, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// board is a dashboard in Grafana's layout: 24 columns, 38 pixels per row.
const board = `<!doctype html><meta charset="utf-8"><style>
body { margin: 0; padding: 14px; background: #111217; color: #ccccdc; font: 13px/1.4 "DejaVu Sans", sans-serif; }
h1 { font-size: 17px; font-weight: 600; margin: 0 0 10px; } h1 span { color: #8e8e99; font-weight: 400; font-size: 13px; margin-left: 16px; }
main { display: grid; grid-template-columns: repeat(24, 1fr); grid-auto-rows: 32px; gap: 8px; }
section { background: #181b1f; border: 1px solid #25282d; border-radius: 3px; padding: 6px 9px; overflow: hidden; display: flex; flex-direction: column; min-width: 0; }
h2 { font-size: 13px; font-weight: 500; margin: 0 0 4px; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; flex: none; }
svg { flex: 1; min-height: 0; width: 100%; } .big { font-size: 30px; text-align: center; flex: 1; }
.top { color: #8e8e99; font-size: 11px; } .names { display: flex; flex-wrap: wrap; gap: 0 14px; font-size: 11px; max-height: 34px; overflow: hidden; flex: none; }
.names b { display: inline-block; width: 10px; height: 3px; margin-right: 5px; vertical-align: middle; }
.states { display: flex; flex: 1; min-height: 0; } .states div { display: flex; flex-direction: column; font-size: 10px; line-height: 1; margin-right: 8px; flex: none; } .states div span { flex: 1; min-height: 0; white-space: nowrap; } .states svg { min-width: 0; width: 0; height: 100%; }
table { border-collapse: collapse; font-size: 11.5px; width: 100%; } th, td { text-align: left; padding: 2px 8px 2px 0; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; max-width: 260px; border-bottom: 1px solid #25282d; } th { color: #6e9fff; font-weight: 500; }
pre { white-space: pre-wrap; margin: 0; font: inherit; } .none { color: #8e8e99; margin: auto; } .closed { margin-top: 10px; color: #ccccdc; } .closed div { padding: 7px 2px; }
</style><h1>{{.Title}}<span>{{.Node}}</span></h1><main>{{range .Panels}}
<section style="grid-column: {{.Column}} / span {{.Columns}}; grid-row: span {{.Rows}}"><h2>{{.Title}}</h2>
{{if .Big}}<div class="big" style="color: {{.Color}}">{{.Big}}</div>{{end}}
{{if and .Top .Shapes}}<div class="top">{{.Top}}</div>{{end}}
{{if eq .Type "state-timeline"}}<div class="states"><div>{{range .Names}}<span>{{.Text}}</span>{{end}}</div><svg viewBox="0 0 1000 100" preserveAspectRatio="none">{{range .Shapes}}<rect x="{{.X}}" y="{{.Y}}" width="{{.W}}" height="{{.H}}" fill="{{.Color}}"/>{{end}}</svg></div>
{{else if .Shapes}}<svg viewBox="0 0 1000 100" preserveAspectRatio="none">{{range .Shapes}}{{if .Points}}<polyline points="{{.Points}}" fill="none" stroke="{{.Color}}" stroke-width="1.5" vector-effect="non-scaling-stroke"/>{{else}}<rect x="{{.X}}" y="{{.Y}}" width="{{.W}}" height="{{.H}}" fill="{{.Color}}"/>{{end}}{{end}}</svg>
{{if .Names}}<div class="names">{{range .Names}}<span><b style="background: {{.Color}}"></b>{{.Text}}</span>{{end}}</div>{{end}}{{end}}
{{if .Head}}<table><tr>{{range .Head}}<th>{{.}}</th>{{end}}</tr>{{range .Cells}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>{{end}}</table>{{end}}
{{if .Text}}{{if eq .Type "text"}}<pre>{{.Text}}</pre>{{else}}<div class="none">{{.Text}}</div>{{end}}{{end}}
</section>{{end}}</main><div class="closed">{{range .Closed}}<div>&rsaquo; {{.}}</div>{{end}}</div>`

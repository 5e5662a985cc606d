package grafana

// What Grafana reads. Fields that hold what differs by the type of a panel are maps.

// dashboard is one file.
type dashboard struct {
	Annotations   list      `json:"annotations"`
	Description   string    `json:"description"`
	Editable      bool      `json:"editable"`
	GraphTooltip  int       `json:"graphTooltip"` // 1: the cross-hair is shared
	Links         []link    `json:"links"`
	Panels        []panel   `json:"panels"`
	Refresh       string    `json:"refresh"`
	SchemaVersion int       `json:"schemaVersion"`
	Tags          []string  `json:"tags"`
	Templating    list      `json:"templating"`
	Time          timeRange `json:"time"`
	Timepicker    struct{}  `json:"timepicker"`
	Timezone      string    `json:"timezone"`
	Title         string    `json:"title"`
	UID           string    `json:"uid"`
	Version       int       `json:"version"`
}

type list struct {
	List []any `json:"list"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// link is one of a dashboard.
type link struct {
	AsDropdown  bool     `json:"asDropdown"`
	Icon        string   `json:"icon"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
	Tags        []string `json:"tags"`
	TargetBlank bool     `json:"targetBlank"`
	Title       string   `json:"title"`
	Type        string   `json:"type"`
	URL         string   `json:"url"`
}

// dataLink is one of a value, or of a panel.
type dataLink struct {
	TargetBlank bool   `json:"targetBlank,omitempty"`
	Title       string `json:"title"`
	URL         string `json:"url"`
}

// annotation marks times in all panels that have a time axis.
type annotation struct {
	Datasource  *source `json:"datasource"`
	Enable      bool    `json:"enable"`
	Expr        string  `json:"expr"`
	Hide        bool    `json:"hide"`
	IconColor   string  `json:"iconColor"`
	Name        string  `json:"name"`
	Step        string  `json:"step"`
	TagKeys     string  `json:"tagKeys"`
	TextFormat  string  `json:"textFormat"`
	TitleFormat string  `json:"titleFormat"`
}

type place struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	Collapsed       *bool          `json:"collapsed,omitempty"` // of rows
	Datasource      *source        `json:"datasource,omitempty"`
	Description     string         `json:"description,omitempty"`
	FieldConfig     *fieldConfig   `json:"fieldConfig,omitempty"`
	GridPos         place          `json:"gridPos"`
	ID              int            `json:"id"`
	Links           []dataLink     `json:"links,omitempty"`
	Options         map[string]any `json:"options,omitempty"`
	Panels          *[]panel       `json:"panels,omitempty"` // of rows
	Targets         []target       `json:"targets,omitempty"`
	Title           string         `json:"title"`
	Transformations []transform    `json:"transformations,omitempty"`
	Type            string         `json:"type"`
}

type target struct {
	Datasource   *source `json:"datasource"`
	EditorMode   string  `json:"editorMode"`
	Expr         string  `json:"expr"`
	Format       string  `json:"format"`
	Instant      bool    `json:"instant"`
	LegendFormat string  `json:"legendFormat"`
	Range        bool    `json:"range"`
	RefID        string  `json:"refId"`
}

type fieldConfig struct {
	Defaults  fieldDefaults `json:"defaults"`
	Overrides []override    `json:"overrides"`
}

type fieldDefaults struct {
	Color      map[string]any `json:"color"`
	Custom     map[string]any `json:"custom,omitempty"`
	Decimals   *int           `json:"decimals,omitempty"`
	Links      []dataLink     `json:"links,omitempty"`
	Mappings   []any          `json:"mappings"`
	Min        *float64       `json:"min,omitempty"`
	NoValue    string         `json:"noValue,omitempty"`
	Thresholds thresholds     `json:"thresholds"`
	Unit       string         `json:"unit"`
}

type thresholds struct {
	Mode  string `json:"mode"`
	Steps []step `json:"steps"`
}

type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

type override struct {
	Matcher    matcher    `json:"matcher"`
	Properties []property `json:"properties"`
}

type matcher struct {
	ID      string `json:"id"`
	Options string `json:"options"`
}

type property struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}

type transform struct {
	ID      string         `json:"id"`
	Options map[string]any `json:"options"`
}

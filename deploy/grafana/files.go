package grafana

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Files returns the dashboards by file name.
func Files() (map[string][]byte, error) {
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

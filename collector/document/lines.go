package document

import (
	"fmt"

	"go.yaml.in/yaml/v4"
)

// Lines returns the line of each value of a YAML document by its path, such as "logs[1].path".
func Lines(raw []byte) (map[string]int, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	lines := map[string]int{}
	for _, root := range doc.Content {
		noteLines(root, "", lines)
	}
	return lines, nil
}

func noteLines(n *yaml.Node, path string, lines map[string]int) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			at := n.Content[i].Value
			if path != "" {
				at = path + "." + at
			}
			lines[at] = n.Content[i].Line
			noteLines(n.Content[i+1], at, lines)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			at := fmt.Sprintf("%s[%d]", path, i)
			lines[at] = item.Line
			noteLines(item, at, lines)
		}
	}
}

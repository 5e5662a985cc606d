package podsource

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// plain refuses what makes a small file big, and what can't be followed.
func plain(n *yaml.Node, depth int) (line int, why string) {
	if depth > maxDepth {
		return n.Line, "more than " + strconv.Itoa(maxDepth) + " levels deep"
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return n.Line, "anchors and aliases are not supported: write the value out"
	}
	for _, c := range n.Content {
		if line, why := plain(c, depth+1); why != "" {
			return line, why
		}
	}
	return 0, ""
}

func child(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func text(n *yaml.Node, key string) string {
	if c := child(n, key); c != nil && c.Kind == yaml.ScalarNode {
		return c.Value
	}
	return ""
}

// locate returns the line of a field, "spec.containers[0].ports"; of what comes nearest
// where it is not there.
func locate(n *yaml.Node, path string) int {
	line := n.Line
	for part := range strings.SplitSeq(strings.ReplaceAll(path, "[", ".["), ".") {
		if index, ok := strings.CutPrefix(part, "["); ok {
			i, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
			if err != nil || n.Kind != yaml.SequenceNode || i < 0 || i >= len(n.Content) {
				return line
			}
			n = n.Content[i]
			line = n.Line
			continue
		}
		next := child(n, part)
		if next == nil {
			return line
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == part {
				line = n.Content[i].Line
			}
		}
		n = next
	}
	return line
}

package agent

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
)

// Document returns a configuration with the origin of each value as a comment.
func (c *Config) Document() (*yaml.Node, error) {
	doc := &yaml.Node{Kind: yaml.MappingNode}
	return doc, c.nodes(reflect.ValueOf(c).Elem(), doc)
}

// nodes adds the keys of a struct with their values and origins.
func (c *Config) nodes(v reflect.Value, doc *yaml.Node) error {
	for field, value := range v.Fields() {
		name, inline, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if inline == "inline" {
			if err := c.nodes(value, doc); err != nil {
				return err
			}
			continue
		}
		if name == "" {
			continue
		}
		node := &yaml.Node{}
		if err := node.Encode(value.Interface()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
		origin := c.OriginOf(name)
		// The comment goes behind a scalar, and above a value that takes several lines.
		if node.Kind == yaml.ScalarNode {
			node.LineComment = "# " + origin
		} else {
			node.Style = yaml.FlowStyle
			if name == "logs" || name == "reports" || name == "services" {
				node.Style = 0
			}
			key.HeadComment = "# " + origin
		}
		if len(node.Content) == 0 && node.Kind == yaml.SequenceNode {
			node.Style = yaml.FlowStyle
		}
		doc.Content = append(doc.Content, key, node)
	}
	return nil
}

// OriginOf returns the origin of a key's value, and for an empty node-name the name that is used.
func (c *Config) OriginOf(key string) string {
	origin := c.origins[key]
	if origin == "" {
		origin = config.Default
	}
	if key != flagNodeName || c.Kube.NodeName != "" || !c.Kube.Exporter {
		return origin
	}
	name, from, err := c.Kube.ResolveNodeName(c.origins)
	if err != nil {
		return origin + "; " + err.Error()
	}
	return fmt.Sprintf("%s: %s, %s", origin, name, from)
}

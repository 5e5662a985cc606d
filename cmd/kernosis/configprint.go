package main

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show the configuration"}
	var of string
	show := &cobra.Command{
		Use:   "print",
		Short: "Print the effective configuration and where each value comes from",
		Long: `Print the configuration that "kernosis agent" (or "kernosis run", with --for run)
gets from the same flags, environment and file. The output is a valid configuration
file; a comment names the source of each value.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch of {
			case "agent":
			case "run":
				if err := onlyOfRun(cmd); err != nil {
					return err
				}
			default:
				return fmt.Errorf("for: %q is neither agent nor run", of)
			}
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			if of == "run" && cfg.Services.filled {
				cfg.Services.Known = nil
			}
			for _, w := range cfg.warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "kernosis: warning:", w)
			}
			return failed(printConfig(cmd.OutOrStdout(), &cfg))
		},
	}
	agentFlags(show)
	show.Flags().StringVar(&of, "for", "agent", "command whose defaults count: `agent` or run")
	cmd.AddCommand(show)
	return cmd
}

// onlyOfRun gives the flags that run has its defaults.
func onlyOfRun(cmd *cobra.Command) error {
	run := newRun().Flags()
	for _, key := range []string{"listen", "report-socket"} {
		f := cmd.Flags().Lookup(key)
		if f.Changed {
			continue
		}
		f.DefValue = run.Lookup(key).DefValue
		if err := f.Value.Set(f.DefValue); err != nil {
			return err
		}
	}
	return nil
}

// printConfig writes a configuration that reads as this one.
func printConfig(w io.Writer, c *agentConfig) error {
	doc := &yaml.Node{Kind: yaml.MappingNode}
	if err := c.nodes(reflect.ValueOf(c).Elem(), doc); err != nil {
		return err
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(doc); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := enc.Close(); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// nodes adds the keys of a struct with their values and origins.
func (c *agentConfig) nodes(v reflect.Value, doc *yaml.Node) error {
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
		origin := c.originOf(name)
		// Behind a scalar; above what has lines of its own.
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

// originOf is where a value is from, and what stands for an empty one.
func (c *agentConfig) originOf(key string) string {
	origin := c.origins[key]
	if origin == "" {
		origin = config.Default
	}
	if key != flagNodeName || c.Kube.NodeName != "" || !c.Kube.Exporter {
		return origin
	}
	name, from, err := c.Kube.nodeName(c.origins)
	if err != nil {
		return origin + "; " + err.Error()
	}
	return fmt.Sprintf("%s: %s, %s", origin, name, from)
}

// Package output writes the results of commands in the format of --output, with colour on terminals.
package output

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Formats of a list or a state.
const (
	Table = "table" // for people
	Wide  = "wide"  // a table with all details
	JSON  = "json"
	YAML  = "yaml"
)

// Text is the human-readable format of commands that write neither a list nor a state. For commands
// with a Table format, Text is another name for Table.
const Text = "text"

// Format is the value of --output. It implements pflag.Value.
type Format struct {
	name  string
	names []string
}

// Add adds -o, --output to a command, with the formats of a list or a state, and others.
func Add(cmd *cobra.Command, others ...string) *Format {
	return AddNames(cmd, append([]string{Table, Wide, JSON, YAML}, others...)...)
}

// AddNames adds -o, --output with only the given formats. The first is the default.
func AddNames(cmd *cobra.Command, names ...string) *Format {
	return AddFlag(cmd, "output", "o", names...)
}

// AddFlag is like AddNames with another flag, for commands whose --output is something else.
func AddFlag(cmd *cobra.Command, flag, short string, names ...string) *Format {
	f := &Format{name: names[0], names: names}
	cmd.Flags().VarP(f, flag, short, "`format` of the output: "+list(names))
	// It fails only if the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// String implements pflag.Value.
func (f *Format) String() string { return f.name }

// Type implements pflag.Value.
func (*Format) Type() string { return "format" }

// Set implements pflag.Value.
func (f *Format) Set(name string) error {
	if name == Text && f.names[0] == Table {
		name = Table
	}
	if !slices.Contains(f.names, name) {
		return errors.New("want " + list(f.names))
	}
	f.name = name
	return nil
}

// Is reports whether the format is the named one.
func (f *Format) Is(name string) bool { return f.name == name }

// ForPeople reports whether the format is text for people.
func (f *Format) ForPeople() bool { return f.Is(Table) || f.Is(Wide) || f.Is(Text) }

// Write writes a value as JSON or YAML; for other formats it calls forPeople.
func (f *Format) Write(w io.Writer, value any, forPeople func() error) error {
	switch f.name {
	case JSON:
		return WriteJSON(w, value)
	case YAML:
		return writeYAML(w, value)
	}
	return forPeople()
}

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// writeYAML writes a value as YAML with the same keys as JSON.
func writeYAML(w io.Writer, value any) error {
	out, err := yaml.Marshal(value)
	if err == nil {
		_, err = w.Write(out)
	}
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return nil
}

// list returns the names joined as in "table, wide, json or yaml".
func list(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

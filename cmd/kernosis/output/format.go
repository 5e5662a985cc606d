// Package output writes what commands find in the form that --output asks for, with colour on
// terminals.
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

// Forms of a list or a state.
const (
	Table = "table" // for people
	Wide  = "wide"  // the same with everything that is known
	JSON  = "json"
	YAML  = "yaml"
)

// Text is the form for people of commands that have others than lists and states have. Where there
// is a Table it is another name of that.
const Text = "text"

// Format is the value of --output. It implements pflag.Value.
type Format struct {
	name  string
	names []string
}

// Add adds -o, --output with the forms of a list or a state to a command, and others.
func Add(cmd *cobra.Command, others ...string) *Format {
	return AddNames(cmd, append([]string{Table, Wide, JSON, YAML}, others...)...)
}

// AddNames adds -o, --output with these forms alone, of which the first is the default.
func AddNames(cmd *cobra.Command, names ...string) *Format {
	return AddFlag(cmd, "output", "o", names...)
}

// AddFlag is AddNames with another flag, for commands whose --output is something else.
func AddFlag(cmd *cobra.Command, flag, short string, names ...string) *Format {
	f := &Format{name: names[0], names: names}
	cmd.Flags().VarP(f, flag, short, "`format` of the output: "+list(names))
	// It fails only for a flag that is not there.
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

// Is reports whether the form is the one of that name.
func (f *Format) Is(name string) bool { return f.name == name }

// ForPeople reports whether the form is text for people.
func (f *Format) ForPeople() bool { return f.Is(Table) || f.Is(Wide) || f.Is(Text) }

// Write writes a value as JSON or YAML; for other forms it calls forPeople.
func (f *Format) Write(w io.Writer, value any, forPeople func() error) error {
	switch f.name {
	case JSON:
		return WriteJSON(w, value)
	case YAML:
		return writeYAML(w, value)
	}
	return forPeople()
}

// WriteJSON writes a value as JSON for people to read too.
func WriteJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// writeYAML writes the keys that JSON has.
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

// list is "table, wide, json or yaml".
func list(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

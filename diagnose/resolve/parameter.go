package resolve

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// input describes the inputs and results of a node's operation.
type input struct {
	builtin *operation.Builtin
	fixed   map[string]string // parameters that the Operation fixes
	script  bool
	keys    []string // argument names of a script
	result  string   // operationResultKey of a script
	all     bool     // a web server: it takes anything and may return anything
}

// gives reports whether the operation may return a result with this name.
func (i *input) gives(name string) bool {
	switch {
	case i.all:
		return true
	case i.builtin != nil:
		return slices.ContainsFunc(i.builtin.Results, func(r operation.Result) bool { return r.Name == name })
	}
	return i.result != "" && (name == "operation."+i.result+".output" || name == "operation."+i.result+".error")
}

// CheckParameters checks the parameters of a diagnosis. The error has one line for each problem: a
// name that no operation takes, an invalid value, or a required parameter that neither the
// diagnosis nor a dependence supplies.
func (p *Plan) CheckParameters(given map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !p.Takes(name) {
			errs = append(errs, fmt.Errorf("parameter %.80q: no operation of the graph has it%s", name, document.Suggest(name, p.Parameters())))
		}
	}
	reported := map[string]bool{}
	report := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !reported[text] {
			reported[text] = true
			errs = append(errs, errors.New(text))
		}
	}
	lacking := map[string][]string{} // parameter → nodes
	for id := 1; id < len(p.inputs); id++ {
		for _, parameter := range p.inputs[id].declared() {
			name := parameter.Name
			if err := parameter.Check(given[name]); err != nil && p.inputs[id].builtin != nil {
				report("parameter %s: %s", name, err)
			}
			if parameter.Required && given[name] == "" && !p.Depends(id, name) {
				lacking[name] = append(lacking[name], fmt.Sprintf("%d (%s)", id, p.Graph.Node(id).Operation))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lacking)) {
		report("parameter %s is required by node %s", name, strings.Join(lacking[name], ", "))
	}
	return errors.Join(errs...)
}

// declared returns the parameters of a built-in that the Operation does not fix. Each argument of a
// script is required.
func (i *input) declared() []operation.Parameter {
	if i.builtin == nil {
		out := make([]operation.Parameter, len(i.keys))
		for n, key := range i.keys {
			out[n] = operation.Parameter{Name: key, Required: true}
		}
		return out
	}
	return slices.DeleteFunc(slices.Clone(i.builtin.Parameters), func(have operation.Parameter) bool { return i.fixed[have.Name] != "" })
}

// Depends reports whether one of a node's dependences may return a result with this name.
func (p *Plan) Depends(id int, name string) bool {
	return slices.ContainsFunc(p.Graph.Node(id).Dependences, func(d int) bool { return p.inputs[d].gives(name) })
}

// Parameters returns the names of all parameters that operations of the graph take from a
// Diagnosis, sorted.
func (p *Plan) Parameters() []string {
	var names []string
	for id := range p.inputs {
		for _, parameter := range p.inputs[id].declared() {
			names = append(names, parameter.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Inputs returns the parameters that a node's operation takes and its Operation does not fix. It
// returns none for a web server, which accepts any parameters.
func (p *Plan) Inputs(id int) []operation.Parameter { return p.inputs[id].declared() }

// Declares reports whether a node's operation declares a result with this name. A web server
// declares none.
func (p *Plan) Declares(id int, name string) bool {
	return !p.inputs[id].all && p.inputs[id].gives(name)
}

// Takes reports whether any operation of the graph takes a parameter with this name from a
// Diagnosis.
func (p *Plan) Takes(name string) bool {
	return slices.ContainsFunc(p.inputs, func(i input) bool {
		return i.all || slices.ContainsFunc(i.declared(), func(have operation.Parameter) bool { return have.Name == name })
	})
}

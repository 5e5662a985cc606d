package resolve

import (
	"slices"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// Inputs returns the parameters that a node's operation takes and its Operation does not
// fix. What a web server takes is not known: it is called with all that is given.
func (p *Plan) Inputs(id int) []operation.Parameter { return p.inputs[id].declared() }

// Declares reports whether a node's operation says that it has a result of the name. What
// a web server answers is not known before.
func (p *Plan) Declares(id int, name string) bool {
	return !p.inputs[id].all && p.inputs[id].gives(name)
}

// Takes reports whether an operation of the graph takes a parameter of the name from a
// Diagnosis.
func (p *Plan) Takes(name string) bool {
	return slices.ContainsFunc(p.inputs, func(i input) bool { return i.all || slices.Contains(i.takes(), name) })
}

package resolve

import (
	"slices"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// Inputs returns the parameters that a node's operation takes and its Operation does not fix. It
// returns none for a web server, which takes whatever it is given.
func (p *Plan) Inputs(id int) []operation.Parameter { return p.inputs[id].declared() }

// Declares reports whether a node's operation declares a result with this name. A web server
// declares none.
func (p *Plan) Declares(id int, name string) bool {
	return !p.inputs[id].all && p.inputs[id].gives(name)
}

// Takes reports whether any operation of the graph takes a parameter with this name from a
// Diagnosis.
func (p *Plan) Takes(name string) bool {
	return slices.ContainsFunc(p.inputs, func(i input) bool { return i.all || slices.Contains(i.takes(), name) })
}

package detector

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
)

// matchPrefix is the prefix of the fields for the named groups of a rule's pattern.
const matchPrefix = "match."

// captured returns the text that a named group captured, empty if the group took
// no part in the match.
func captured(e *event.Event, group string) event.Value {
	if e.Log == nil {
		return event.Value{}
	}
	return event.Value{Text: display.Prefix(e.Log.Captures[group], event.MaxFieldText)}
}

// withGroups returns a compiler with additional fields match.<group> for the groups.
func (c *compiler) withGroups(groups []string) (*compiler, error) {
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	key := strings.Join(groups, ",")
	if v := c.variants[key]; v != nil {
		return v, nil
	}
	v := &compiler{env: c.env, match: make(map[string]*event.Field, len(groups))}
	var opts []cel.EnvOption
	for _, g := range groups {
		v.match[matchPrefix+g] = &event.Field{Name: matchPrefix + g, Type: event.TypeString, Kinds: []event.Kind{event.Log}, Doc: "a group of the pattern",
			Read: func(e *event.Event) event.Value { return captured(e, g) }}
		opts = append(opts, cel.Variable(matchPrefix+g, cel.StringType))
	}
	if len(opts) > 0 {
		env, err := c.env.Extend(opts...)
		if err != nil {
			return nil, err
		}
		v.env = env
	}
	c.variants[key] = v
	return v, nil
}

// field returns the field of that name, or nil.
func (c *compiler) field(name string) *event.Field {
	if f := event.FieldByName(name); f != nil {
		return f
	}
	return c.match[name]
}

// unknownField returns the error text for an unknown field, with the most similar known one.
func (c *compiler) unknownField(name string) string {
	near := fieldNames()
	if strings.HasPrefix(name, matchPrefix) {
		switch near = slices.Sorted(maps.Keys(c.match)); {
		case c.match == nil:
			return "unknown field " + strconv.Quote(name) + ": only the named groups of a rule's pattern are match fields"
		case len(near) == 0:
			return "unknown field " + strconv.Quote(name) + ": the pattern has no named groups, such as (?P<device>\\w+)"
		}
	}
	return "unknown field " + strconv.Quote(name) + document.Suggest(name, near)
}

const podLabelsField = "pod.labels"

// labelFunction is the CEL function that reads a pod label. Rules can't call it, because the name is
// not a valid identifier.
const labelFunction = "@label"

func isPodLabels(f *event.Field) bool { return f.Name == podLabelsField }

// readsPodLabels reports whether some expression of the rule reads pod.labels.
func (r *Rule) readsPodLabels() bool {
	of := func(x *expr) bool { return x != nil && slices.ContainsFunc(x.fields, isPodLabels) }
	return of(r.when) || of(r.clearWhen) || slices.ContainsFunc(r.message.fields(), isPodLabels) ||
		slices.ContainsFunc(r.severityWhen, func(w severityWhen) bool { return of(w.when) })
}

// labelLookUp declares labelFunction, which replaces pod.labels["team"] in expressions. A missing
// label is the empty text, like other fields that an event does not carry: an error would keep the
// rule from matching, even with pod.labels["team"] != "db". Tests for the presence of a label ("in",
// has, [?]) are left to CEL.
func labelLookUp() cel.EnvOption {
	return cel.Function(labelFunction, cel.Overload("label_of", []*cel.Type{celType(event.TypeStringMap), cel.StringType}, cel.StringType,
		cel.BinaryBinding(func(labels, name ref.Val) ref.Val {
			if v, ok := labels.(traits.Mapper).Find(name); ok {
				return v
			}
			return types.String("")
		})))
}

// labelsByName replaces reads of pod labels by calls of labelFunction.
func (c *compiler) labelsByName(checked *cel.Ast) (*cel.Ast, *cel.Issues) {
	o, err := cel.NewStaticOptimizer(labelReads{})
	if err != nil {
		panic(err) // can't happen for this type
	}
	return o.Optimize(c.env, checked)
}

// labelReads replaces pod.labels["team"] and pod.labels.team by calls of labelFunction.
type labelReads struct{}

// Optimize implements [cel.ASTOptimizer].
func (labelReads) Optimize(ctx *cel.OptimizerContext, a *ast.AST) *ast.AST {
	ofPod := func(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == podLabelsField }
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.CallKind:
			if call := e.AsCall(); call.FunctionName() == operators.Index && ofPod(call.Args()[0]) {
				e.SetKindCase(ctx.NewCall(labelFunction, call.Args()...))
			}
		case ast.SelectKind:
			if s := e.AsSelect(); !s.IsTestOnly() && ofPod(s.Operand()) {
				e.SetKindCase(ctx.NewCall(labelFunction, s.Operand(), ctx.NewLiteral(types.String(s.FieldName()))))
			}
		}
	}))
	return a
}

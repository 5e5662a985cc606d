package detector

import (
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/kernosis/kernosis/collector/event"
)

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

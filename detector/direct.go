package detector

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

// direct is an expression as Go functions, without CEL's interpreter. It supports the forms
// that most rules use: fields and literals; comparisons; in; &&, ||, ! and ?:; + of texts; contains,
// startsWith and endsWith; division by a positive literal; orValue; string, humanBytes and
// humanDuration. None of these can fail, and each returns
// the same as CEL (ADR 28). For other forms both functions are nil.
type direct struct {
	truth func(*event.Event) bool                 // nil unless the expression is boolean
	text  func(e *event.Event, dst []byte) []byte // appends the expression's value as text to dst
}

// newDirect returns the direct form of a checked expression.
func newDirect(c *compiler, a *ast.AST) direct {
	var d direct
	of := directCompiler{c}
	if a.GetType(a.Expr().ID()).IsExactType(types.BoolType) {
		if d.truth = of.truth(a.Expr()); d.truth != nil {
			d.text = func(ev *event.Event, dst []byte) []byte { return strconv.AppendBool(dst, d.truth(ev)) }
		}
	} else if d.text = of.append(a.Expr()); d.text == nil {
		d.text = of.integer(a.Expr())
	}
	if f := c.fieldOf(a.Expr()); f != nil {
		d.text = func(ev *event.Event, dst []byte) []byte {
			v := f.Read(ev)
			return v.Append(dst, f.Type)
		}
	}
	return d
}

// directCompiler compiles parts of an expression. Each method returns nil if the part has
// an unsupported type or form.
type directCompiler struct {
	*compiler
}

// read returns a function that reads a field of the given type.
func (c directCompiler) read(e ast.Expr, t event.FieldType) func(*event.Event) event.Value {
	if f := c.fieldOf(e); f != nil && f.Type == t {
		return f.Read
	}
	return nil
}

// call returns the function and the arguments of a call. The receiver of a method is the first
// argument.
func call(e ast.Expr) (function string, args []ast.Expr) {
	if e.Kind() != ast.CallKind {
		return "", nil
	}
	if args = e.AsCall().Args(); e.AsCall().IsMemberFunction() {
		args = slices.Concat([]ast.Expr{e.AsCall().Target()}, args)
	}
	return e.AsCall().FunctionName(), args
}

// literalOf returns the value of a literal of the given type.
func literalOf[T ref.Val](e ast.Expr) (v T, ok bool) {
	if e.Kind() == ast.LiteralKind {
		v, ok = e.AsLiteral().(T)
	}
	return v, ok
}

func (c directCompiler) truth(e ast.Expr) func(*event.Event) bool {
	if v, ok := literalOf[types.Bool](e); ok {
		return func(*event.Event) bool { return bool(v) }
	}
	if read := c.read(e, event.TypeBool); read != nil {
		return func(ev *event.Event) bool { return read(ev).Number != 0 }
	}
	function, args := call(e)
	switch function {
	case operators.LogicalNot:
		if x := c.truth(args[0]); x != nil {
			return func(ev *event.Event) bool { return !x(ev) }
		}
		return nil
	case operators.LogicalAnd, operators.LogicalOr:
		if len(args) != 2 {
			return nil
		}
		x, y := c.truth(args[0]), c.truth(args[1])
		switch {
		case x == nil || y == nil:
			return nil
		case function == operators.LogicalAnd:
			return func(ev *event.Event) bool { return x(ev) && y(ev) }
		}
		return func(ev *event.Event) bool { return x(ev) || y(ev) }
	case operators.Conditional:
		if x, y, z := c.truth(args[0]), c.truth(args[1]), c.truth(args[2]); x != nil && y != nil && z != nil {
			return func(ev *event.Event) bool {
				if x(ev) {
					return y(ev)
				}
				return z(ev)
			}
		}
		return nil
	case operators.In:
		return c.in(args)
	}
	return c.compare(function, args)
}

// in returns a function that reports whether a text is in a list of literals.
func (c directCompiler) in(args []ast.Expr) func(*event.Event) bool {
	x := c.word(args[0])
	if x == nil || args[1].Kind() != ast.ListKind {
		return nil
	}
	var list []string
	for _, e := range args[1].AsList().Elements() {
		v, ok := literalOf[types.String](e)
		if !ok {
			return nil
		}
		list = append(list, string(v))
	}
	return func(ev *event.Event) bool { return slices.Contains(list, x(ev)) }
}

func (c directCompiler) compare(function string, args []ast.Expr) func(*event.Event) bool {
	if len(args) != 2 {
		return nil
	}
	if x, y := c.word(args[0]), c.word(args[1]); x != nil && y != nil {
		return tested(compareTexts(function), x, y)
	}
	for _, t := range []event.FieldType{event.TypeInt, event.TypeDuration} {
		if x, y := c.number(args[0], t), c.number(args[1], t); x != nil && y != nil {
			return tested(ordered[int64](function), x, y)
		}
	}
	return nil
}

// tested applies a test, which may be nil, to the values of two parts.
func tested[T any](test func(x, y T) bool, x, y func(*event.Event) T) func(*event.Event) bool {
	if test == nil {
		return nil
	}
	return func(ev *event.Event) bool { return test(x(ev), y(ev)) }
}

func compareTexts(function string) func(x, y string) bool {
	switch function {
	case overloads.Contains:
		return strings.Contains
	case overloads.StartsWith:
		return strings.HasPrefix
	case overloads.EndsWith:
		return strings.HasSuffix
	}
	return ordered[string](function)
}

func ordered[T cmp.Ordered](function string) func(x, y T) bool {
	switch function {
	case operators.Equals:
		return func(x, y T) bool { return x == y }
	case operators.NotEquals:
		return func(x, y T) bool { return x != y }
	case operators.Less:
		return func(x, y T) bool { return x < y }
	case operators.LessEquals:
		return func(x, y T) bool { return x <= y }
	case operators.Greater:
		return func(x, y T) bool { return x > y }
	case operators.GreaterEquals:
		return func(x, y T) bool { return x >= y }
	}
	return nil
}

// word returns a function for a text that needs no allocation: a field or a literal.
func (c directCompiler) word(e ast.Expr) func(*event.Event) string {
	if v, ok := literalOf[types.String](e); ok {
		return func(*event.Event) string { return string(v) }
	}
	if read := c.read(e, event.TypeString); read != nil {
		return func(ev *event.Event) string { return read(ev).Text }
	}
	return nil
}

// number returns a function for an integer, or a duration in nanoseconds: a field or a literal, or an
// integer divided by a positive literal.
func (c directCompiler) number(e ast.Expr, t event.FieldType) func(*event.Event) int64 {
	if read := c.read(e, t); read != nil {
		return func(ev *event.Event) int64 { return read(ev).Number }
	}
	function, args := call(e)
	if function == operators.Divide && t == event.TypeInt {
		x := c.number(args[0], t)
		if by, ok := literalOf[types.Int](args[1]); ok && by > 0 && x != nil {
			return func(ev *event.Event) int64 { return x(ev) / int64(by) }
		}
	}
	constant := func(n int64) func(*event.Event) int64 { return func(*event.Event) int64 { return n } }
	if v, ok := literalOf[types.Int](e); ok && t == event.TypeInt {
		return constant(int64(v))
	}
	if function == overloads.TypeConvertDuration && t == event.TypeDuration {
		text, ok := literalOf[types.String](args[0])
		if d, err := time.ParseDuration(string(text)); ok && err == nil { // CEL reports the error
			return constant(int64(d))
		}
	}
	return nil
}

// append returns a function that appends a text expression of any supported form.
func (c directCompiler) append(e ast.Expr) func(*event.Event, []byte) []byte {
	if x := c.word(e); x != nil {
		return func(ev *event.Event, dst []byte) []byte { return append(dst, x(ev)...) }
	}
	switch function, args := call(e); function {
	case operators.Add:
		if x, y := c.append(args[0]), c.append(args[1]); x != nil && y != nil {
			return func(ev *event.Event, dst []byte) []byte { return y(ev, x(ev, dst)) }
		}
	case operators.Conditional:
		if x, y, z := c.truth(args[0]), c.append(args[1]), c.append(args[2]); x != nil && y != nil && z != nil {
			return func(ev *event.Event, dst []byte) []byte {
				if x(ev) {
					return y(ev, dst)
				}
				return z(ev, dst)
			}
		}
	case "orValue": // of cel.OptionalTypes
		if read, word := c.read(args[0], event.TypeOptionalString), c.word(args[1]); read != nil && word != nil {
			return func(ev *event.Event, dst []byte) []byte {
				if v := read(ev); v.Present {
					return append(dst, v.Text...)
				}
				return append(dst, word(ev)...)
			}
		}
	case overloads.TypeConvertString:
		return c.integer(args[0])
	case bytesFunction:
		if x := c.number(args[0], event.TypeInt); x != nil {
			return func(ev *event.Event, dst []byte) []byte { return append(dst, display.Bytes(x(ev))...) }
		}
	case durationFunction:
		if x := c.number(args[0], event.TypeDuration); x != nil {
			return func(ev *event.Event, dst []byte) []byte {
				return append(dst, display.Duration(time.Duration(x(ev)))...)
			}
		}
	}
	return nil
}

// integer returns a function that appends an integer.
func (c directCompiler) integer(e ast.Expr) func(*event.Event, []byte) []byte {
	x := c.number(e, event.TypeInt)
	if x == nil {
		return nil
	}
	return func(ev *event.Event, dst []byte) []byte { return strconv.AppendInt(dst, x(ev), 10) }
}

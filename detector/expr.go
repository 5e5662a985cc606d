package detector

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/kernosis/kernosis/collector/event"
)

// expr is one compiled expression. It is immutable and safe for concurrent use.
type expr struct {
	direct   direct
	program  cel.Program    // for CEL's interpreter; nil if there is a direct form
	fields   []*event.Field // fields it reads, in order of first use
	out      *cel.Type
	compared map[string][]literal // literals, by the field that they are compared with
}

// literal is a text that an expression compares with a field.
type literal struct {
	text   string
	offset int // in the expression, characters
}

// exprError is a mistake inside an expression, at a character offset.
type exprError struct {
	offset int
	msg    string
}

// compiler holds the environment and compiles expressions in it.
type compiler struct {
	env      *cel.Env
	match    map[string]*event.Field // match.<group>: the named groups of the rule's pattern; nil: it has no pattern
	variants map[string]*compiler    // by the names of the groups
}

func newCompiler() (*compiler, error) {
	env, err := newEnv()
	if err != nil {
		return nil, err
	}
	return &compiler{env: env, variants: make(map[string]*compiler)}, nil
}

// compile parses, checks and plans one expression. A panic of the library becomes a mistake of the
// expression: no rule may end the agent.
func (c *compiler) compile(source string) (x *expr, mistakes []exprError) {
	defer func() {
		if p := recover(); p != nil {
			x, mistakes = nil, []exprError{{0, fmt.Sprintf("can't be compiled: %v", p)}}
		}
	}()
	if len(source) > maxExpr {
		return nil, []exprError{{0, fmt.Sprintf("expression has %d bytes, at most %d are allowed", len(source), maxExpr)}}
	}
	checked, issues := c.env.Compile(source)
	if issues.Err() != nil {
		var out []exprError
		text := common.NewTextSource(source)
		for _, e := range issues.Errors() {
			at, _ := text.LocationOffset(e.Location)
			offset := max(int(at), 0)
			out = append(out, exprError{offset, c.explain(source, offset, e.Message)})
		}
		return nil, out
	}
	x = &expr{out: checked.OutputType(), compared: make(map[string][]literal)}
	x.inspect(c, checked.NativeRep())
	if x.direct = newDirect(c, checked.NativeRep()); x.direct.text != nil {
		return x, nil
	}
	if x.program, mistakes = c.interpreted(x, checked); len(mistakes) > 0 {
		return nil, mistakes
	}
	return x, nil
}

// interpreted returns the program of an expression for CEL's interpreter, unless its worst case is
// too expensive.
func (c *compiler) interpreted(x *expr, checked *cel.Ast) (cel.Program, []exprError) {
	if slices.ContainsFunc(x.fields, isPodLabels) {
		var issues *cel.Issues
		if checked, issues = c.labelsByName(checked); issues.Err() != nil {
			return nil, []exprError{{0, issues.Err().Error()}}
		}
	}
	opts := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	cost, err := c.env.EstimateCost(checked, sizes{})
	if err != nil {
		return nil, []exprError{{0, "cost: " + err.Error()}}
	}
	switch {
	case cost.Max == math.MaxUint64:
		return nil, []exprError{{0, "too expensive: the length of its texts is unbounded"}}
	case cost.Max > maxCost:
		return nil, []exprError{{0, fmt.Sprintf("too expensive: worst case %d units, at most %d are allowed", cost.Max, maxCost)}}
	case cost.Max > freeCost:
		opts = append(opts, cel.CostLimit(cutCost), addressTracking())
	}
	program, err := c.env.Program(checked, opts...)
	if err != nil {
		return nil, []exprError{{0, err.Error()}}
	}
	return program, nil
}

// explain improves the checker's message on an unknown field: it names the whole
// dotted field instead of its first part, and suggests the most similar one.
func (c *compiler) explain(source string, offset int, msg string) string {
	if !strings.HasPrefix(msg, "undeclared reference to") {
		return msg
	}
	runes := []rune(source)
	end := min(offset, len(runes))
	for end < len(runes) && (runes[end] == '.' || runes[end] == '_' || unicode.IsLetter(runes[end]) || unicode.IsDigit(runes[end])) {
		end++
	}
	name := string(runes[min(offset, end):end])
	if name == "" || end < len(runes) && runes[end] == '(' {
		return msg
	}
	return c.unknownField(name)
}

// inspect notes which fields the expression reads and with which literals it compares them.
func (x *expr) inspect(c *compiler, a *ast.AST) {
	seen := make(map[*event.Field]bool)
	compared := func(field, with ast.Expr) {
		s, ok := literalOf[types.String](with)
		if !ok || field.Kind() != ast.IdentKind {
			return
		}
		l := literal{text: string(s)}
		if r, ok := a.SourceInfo().GetOffsetRange(with.ID()); ok {
			l.offset = int(r.Start)
		}
		x.compared[field.AsIdent()] = append(x.compared[field.AsIdent()], l)
	}
	ast.PreOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			if f := c.field(e.AsIdent()); f != nil && !seen[f] {
				seen[f] = true
				x.fields = append(x.fields, f)
			}
		case ast.CallKind:
			call := e.AsCall()
			args := call.Args()
			if len(args) != 2 {
				return
			}
			switch call.FunctionName() {
			case operators.Equals, operators.NotEquals:
				compared(args[0], args[1])
				compared(args[1], args[0])
			case operators.In:
				if args[1].Kind() == ast.ListKind {
					for _, el := range args[1].AsList().Elements() {
						compared(args[0], el)
					}
				}
			}
		}
	}))
}

func (c *compiler) fieldOf(e ast.Expr) *event.Field {
	if e.Kind() == ast.IdentKind {
		return c.field(e.AsIdent())
	}
	return nil
}

// test evaluates a boolean expression.
func (x *expr) test(a *activation) (bool, error) {
	if x.direct.truth != nil {
		return x.direct.truth(a.ev), nil
	}
	v, _, err := x.program.Eval(a)
	return err == nil && v == types.True, err
}

// activation gives expressions the fields of one event. It is reused for all events, so that an
// evaluation allocates only for the fields it reads (and nothing for fields with few values).
type activation struct {
	ev    *event.Event
	known map[string]ref.Val // cached CEL values of fields with few values
}

// maxKnown bounds the cached texts: normally there are a few dozen, and a
// source that invents texts must not grow the map.
const maxKnown = 1024

func newActivation() *activation { return &activation{known: make(map[string]ref.Val)} }

// ResolveName implements interpreter.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	f := event.FieldByName(name)
	group, isMatch := strings.CutPrefix(name, matchPrefix)
	if f == nil && !isMatch {
		return nil, false
	}
	if a.ev == nil {
		return types.NewErr("no event"), true
	}
	if isMatch {
		return types.String(captured(a.ev, group).Text), true
	}
	v := f.Read(a.ev)
	if f.Few && f.Type == event.TypeString {
		return a.keep(v.Text), true
	}
	return celValue(&v, f.Type), true
}

func (a *activation) keep(s string) ref.Val {
	if v, ok := a.known[s]; ok {
		return v
	}
	v := types.String(s)
	if len(a.known) < maxKnown && len(s) <= 64 {
		a.known[s] = v
	}
	return v
}

// Parent implements interpreter.Activation. It returns nil.
func (a *activation) Parent() interpreter.Activation { return nil }

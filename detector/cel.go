package detector

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

// Bounds of expressions. A unit of CEL cost takes at most about 50 ns here (a
// call), much less in text search (200,000 units took 0.1 ms).
const (
	// maxExpr is the longest expression, in characters: more is a program, not a rule.
	maxExpr = 4096
	// freeCost is the worst-case cost up to which an expression runs without
	// its cost being tracked; tracking makes an evaluation several times slower.
	// 20,000 units are at most 1 ms, for the longest texts an event can hold.
	freeCost = 20_000
	// maxCost is the estimated worst case above which a rule is refused: at most 100 ms if all
	// of it were calls. The estimate for a search in each part of a split text is 1.7 million units
	// (44 ms measured on a busy machine, for a text of 4,096 commas).
	maxCost = 2_000_000
	// cutCost aborts an evaluation that costs far more than estimated. It is enforced for
	// expressions whose worst case is above freeCost. No accepted expression is known to
	// reach it (TestAcceptedExpressionsAreNotCutOff).
	cutCost = 2 * maxCost
	// maxRegexProgram bounds a compiled pattern, in instructions.
	maxRegexProgram = 1000
)

// Custom CEL functions.
const (
	bytesFunction    = "humanBytes"
	durationFunction = "humanDuration"
)

// newEnv builds the CEL environment of all rules: the fields as flat, typed variables, the standard
// library, optionals, strings, sets, regex and network extensions, humanBytes and humanDuration.
func newEnv() (*cel.Env, error) {
	opts := []cel.EnvOption{
		cel.OptionalTypes(),
		ext.Strings(), ext.Sets(), ext.Regex(), ext.Network(), addressCosts(), textCosts(),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(maxExpr),
		cel.ExpressionNodeLimit(4 * maxExpr),
		cel.RegexProgramSizeLimit(maxRegexProgram),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), fixedPatterns{},
			cel.ValidateComprehensionNestingLimit(2)),
		cel.Function(bytesFunction, cel.Overload("human_bytes_int", []*cel.Type{cel.IntType}, cel.StringType,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return types.String(display.Bytes(int64(v.(types.Int)))) }))),
		cel.Function(durationFunction, cel.Overload("human_duration_duration", []*cel.Type{cel.DurationType}, cel.StringType,
			cel.UnaryBinding(func(v ref.Val) ref.Val {
				return types.String(display.Duration(v.(types.Duration).Duration))
			}))),
		labelLookUp(),
	}
	for _, f := range event.Fields() {
		opts = append(opts, cel.VariableWithDoc(f.Name, celType(f.Type), f.Doc))
	}
	env, err := cel.NewEnv(opts...)
	if err != nil {
		return nil, fmt.Errorf("cel environment: %w", err)
	}
	return env, nil
}

func celType(t event.FieldType) *cel.Type {
	switch t {
	case event.TypeInt:
		return cel.IntType
	case event.TypeBool:
		return cel.BoolType
	case event.TypeDuration:
		return cel.DurationType
	case event.TypeTimestamp:
		return cel.TimestampType
	case event.TypeOptionalString:
		return cel.OptionalType(cel.StringType)
	case event.TypeStringList:
		return cel.ListType(cel.StringType)
	case event.TypeStringMap:
		return cel.MapType(cel.StringType, cel.StringType)
	}
	return cel.StringType
}

// celValue converts a field's value to CEL without reflection.
func celValue(v *event.Value, t event.FieldType) ref.Val {
	switch t {
	case event.TypeInt:
		return types.Int(v.Number)
	case event.TypeBool:
		return types.Bool(v.Number != 0)
	case event.TypeDuration:
		return types.Duration{Duration: time.Duration(v.Number)}
	case event.TypeTimestamp:
		return types.Timestamp{Time: v.Time}
	case event.TypeOptionalString:
		if !v.Present {
			return types.OptionalNone
		}
		return types.OptionalOf(types.String(v.Text))
	case event.TypeStringList:
		return types.NewStringList(types.DefaultTypeAdapter, slices.Clone(v.List))
	case event.TypeStringMap:
		return types.NewStringStringMap(types.DefaultTypeAdapter, v.Labels)
	}
	return types.String(v.Text)
}

// sizes gives the cost estimator the maximum sizes of the fields.
type sizes struct{}

// EstimateSize implements cost.Estimator.
func (sizes) EstimateSize(n cost.AstNode) *cost.SizeEstimate {
	path := n.Path()
	if len(path) == 0 {
		return nil
	}
	f := event.FieldByName(path[0])
	switch {
	case strings.HasPrefix(path[0], matchPrefix):
	case f == nil:
		return nil
	case f.Type == event.TypeStringList && len(path) == 1:
		return &cost.SizeEstimate{Max: event.MaxFieldList}
	case f.Type == event.TypeStringMap && len(path) == 1:
		return &cost.SizeEstimate{Max: event.MaxPodLabels}
	case f.Type == event.TypeStringMap:
		return &cost.SizeEstimate{Max: event.MaxLabelName} // values are shorter
	}
	return &cost.SizeEstimate{Max: event.MaxFieldText}
}

// EstimateCallCost implements cost.Estimator.
func (sizes) EstimateCallCost(function, _ string, _ *cost.AstNode, args []cost.AstNode) *cost.CallEstimate {
	switch function {
	case bytesFunction, durationFunction:
	case labelFunction:
		return &cost.CallEstimate{CostEstimate: cost.Estimate{Min: 1, Max: 1}, ResultSize: &cost.SizeEstimate{Max: event.MaxLabelValue}}
	case "string":
		// The text of a number, time or boolean is short; CEL assumes no bound.
		if len(args) != 1 || args[0].Type().Kind() == types.StringKind || args[0].Type().Kind() == types.BytesKind {
			return nil
		}
	default:
		return nil
	}
	return &cost.CallEstimate{
		CostEstimate: cost.Estimate{Min: 1, Max: 1},
		ResultSize:   &cost.SizeEstimate{Max: 40},
	}
}

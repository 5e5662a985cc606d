package detector

import (
	"cmp"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/kernosis/kernosis/collector/event"
)

// textCosts corrects the estimated worst cases of regular expressions and of the strings extension.
// These assume that a search takes as long as the pattern is written, that list elements are single
// characters and that a pattern never matches the empty text.
func textCosts() cel.EnvOption {
	return cel.CostEstimatorOptions(
		cost.OverloadCostEstimate(overloads.Matches, matchesCost),
		cost.OverloadCostEstimate(overloads.MatchesString, matchesCost),
		cost.OverloadCostEstimate("regex_extract_string_string", regexExtractCost),
		cost.OverloadCostEstimate("regex_extractAll_string_string", regexExtractAllCost),
		cost.OverloadCostEstimate("regex_replace_string_string_string", regexReplaceCost),
		cost.OverloadCostEstimate("regex_replace_string_string_string_int", regexReplaceCost),
		cost.OverloadCostEstimate("string_split_string", splitCost),
		cost.OverloadCostEstimate("string_split_string_int", splitCost),
		cost.OverloadCostEstimate("list_join", joinCost),
		cost.OverloadCostEstimate("list_join_string", joinCost),
	)
}

// regexReplaceCost allows for a replacement at each byte, in which two bytes such as \1 may
// expand to the whole text.
func regexReplaceCost(e cost.Estimator, _ *cost.AstNode, args []cost.AstNode) *cost.CallEstimate {
	text, replacement := sizeOf(e, args[0]), sizeOf(e, args[2])
	result := text.Add(exactly(1)).Multiply(replacement).Multiply(exactly(2)).Add(text)
	search := searchCost(e, args[0], args[1], true)
	return &cost.CallEstimate{CostEstimate: search.Add(result.AsCost()).Add(exactly(1).AsCost()), ResultSize: atMost(result)}
}

func matchesCost(e cost.Estimator, target *cost.AstNode, args []cost.AstNode) *cost.CallEstimate {
	if target != nil {
		args = append([]cost.AstNode{*target}, args...)
	}
	return &cost.CallEstimate{CostEstimate: searchCost(e, args[0], args[1], false)}
}

func regexExtractCost(e cost.Estimator, _ *cost.AstNode, args []cost.AstNode) *cost.CallEstimate {
	text := sizeOf(e, args[0])
	return &cost.CallEstimate{CostEstimate: searchCost(e, args[0], args[1], false).Add(text.AsCost()), ResultSize: atMost(text)}
}

func regexExtractAllCost(e cost.Estimator, _ *cost.AstNode, args []cost.AstNode) *cost.CallEstimate {
	list := sizeOf(e, args[0]).Add(exactly(1))
	result := cost.ListSizeEstimate(*atMost(list), *atMost(sizeOf(e, args[0])))
	search := searchCost(e, args[0], args[1], true)
	return &cost.CallEstimate{CostEstimate: search.Add(list.AsCost()).Add(exactly(cost.ListCreateBaseCost).AsCost()), ResultSize: &result}
}

// searchCost is the worst case of a search for a pattern, or for all its matches. The engine takes up
// to 5 ns, 0.1 units, for each instruction of the compiled pattern and byte of the text. The library
// charges for the pattern's length, which is more for a long class of characters.
func searchCost(e cost.Estimator, text, pattern cost.AstNode, all bool) cost.Estimate {
	size := sizeOf(e, text).Add(exactly(1))
	charged := size.MultiplyByCostFactor(0.1).Multiply(sizeOf(e, pattern).Add(exactly(1)).MultiplyByCostFactor(0.25))
	instructions, again := patternSize(pattern.Expr())
	steps := size.Multiply(exactly(instructions))
	if all && again {
		steps = steps.Multiply(size)
	}
	estimate := steps.MultiplyByCostFactor(0.1)
	return cost.Estimate{Max: max(charged.Max, estimate.Max)}
}

// splitCost allows for the one element that an empty text yields.
func splitCost(e cost.Estimator, target *cost.AstNode, _ []cost.AstNode) *cost.CallEstimate {
	text := sizeOf(e, *target)
	list := text.Add(exactly(1))
	return &cost.CallEstimate{CostEstimate: text.MultiplyByCostFactor(0.1).Add(list.AsCost()).Add(exactly(12).AsCost()), ResultSize: atMost(list)}
}

// joinCost bounds the elements of a list that is a field by the longest field text, and those of a
// split text by the text. For other lists it has no bound.
func joinCost(e cost.Estimator, target *cost.AstNode, args []cost.AstNode) *cost.CallEstimate {
	list, separator := sizeOf(e, *target), exactly(0)
	if len(args) > 0 {
		separator = sizeOf(e, args[0])
	}
	all := cost.UnknownSizeEstimate()
	switch x := (*target).Expr(); {
	case x.Kind() == ast.CallKind && x.AsCall().FunctionName() == "split":
		all = list
	case len((*target).Path()) == 1:
		all = list.Multiply(exactly(event.MaxFieldText))
	}
	result := all.Add(list.Multiply(separator))
	return &cost.CallEstimate{CostEstimate: result.AsCost().Add(list.AsCost()).Add(exactly(2).AsCost()), ResultSize: atMost(result)}
}

func exactly(n uint64) cost.SizeEstimate { return cost.SizeEstimate{Min: n, Max: n} }

func atMost(s cost.SizeEstimate) *cost.SizeEstimate { return &cost.SizeEstimate{Max: s.Max} }

// sizeOf returns how long a value can be; unbounded if there is no estimate.
func sizeOf(e cost.Estimator, n cost.AstNode) cost.SizeEstimate {
	unknown := cost.UnknownSizeEstimate()
	return *cmp.Or(n.ComputedSize(), e.EstimateSize(n), &unknown)
}

// parsesAddress lists the overloads of the network extension that parse their last argument. The
// extension charges 0.1 a byte for reading the text, but an invalid address costs an error that
// quotes the text twice: about 40 ns a byte, which is 1 unit.
func parsesAddress() []string {
	return []string{"string_to_ip", "string_to_cidr", "is_ip", "is_cidr", "ip_is_canonical",
		"cidr_contains_ip_string", "cidr_contains_cidr_string"}
}

// addressCosts corrects the estimated worst cases.
func addressCosts() cel.EnvOption {
	estimate := func(e cost.Estimator, _ *cost.AstNode, args []cost.AstNode) *cost.CallEstimate {
		size := cost.SizeEstimate{Max: event.MaxFieldText}
		if len(args) > 0 && !isPart(args[0].Expr()) {
			size = sizeOf(e, args[0])
		}
		return &cost.CallEstimate{
			CostEstimate: size.MultiplyByCostFactor(1).Add(cost.Estimate{Min: 1, Max: 1}),
			ResultSize:   &cost.SizeEstimate{Min: 1, Max: 16}, // bytes of an address
		}
	}
	var opts []cost.Option
	for _, id := range parsesAddress() {
		opts = append(opts, cost.OverloadCostEstimate(id, estimate))
	}
	return cel.CostEstimatorOptions(opts...)
}

// isPart reports whether an expression is one part of a field's split text, so not longer than a field.
func isPart(e ast.Expr) bool {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Index {
		return false
	}
	list := e.AsCall().Args()[0]
	if list.Kind() != ast.CallKind || list.AsCall().FunctionName() != "split" {
		return false
	}
	text := list.AsCall().Target()
	return text.Kind() == ast.IdentKind && (strings.HasPrefix(text.AsIdent(), matchPrefix) || event.FieldByName(text.AsIdent()) != nil)
}

// addressTracking corrects the costs that an evaluation is charged.
func addressTracking() cel.ProgramOption {
	track := func(args []ref.Val, _ ref.Val) *uint64 {
		units := uint64(1)
		if s, ok := args[len(args)-1].(types.String); ok {
			units += uint64(len(s))
		}
		return &units
	}
	var opts []cost.TrackerOption
	for _, id := range parsesAddress() {
		opts = append(opts, cost.OverloadTracker(id, track))
	}
	return cel.CostTrackerOptions(opts...)
}

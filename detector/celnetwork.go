package detector

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/checker"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/kernosis/kernosis/collector/event"
)

// parsesAddress lists the overloads of the network extension that parse their
// last argument. The extension charges 0.1 a byte for reading the text, but an
// invalid address costs an error that quotes the text twice: about 40 ns a byte,
// which is 1 unit.
func parsesAddress() []string {
	return []string{"string_to_ip", "string_to_cidr", "is_ip", "is_cidr", "ip_is_canonical",
		"cidr_contains_ip_string", "cidr_contains_cidr_string"}
}

// addressCosts corrects the estimated worst cases.
func addressCosts() cel.EnvOption {
	estimate := func(e checker.CostEstimator, _ *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
		size := checker.SizeEstimate{Max: event.MaxFieldText}
		if len(args) > 0 {
			if s := args[0].ComputedSize(); s != nil {
				size = *s
			} else if s := e.EstimateSize(args[0]); s != nil {
				size = *s
			}
		}
		return &checker.CallEstimate{
			CostEstimate: size.MultiplyByCostFactor(1).Add(checker.CostEstimate{Min: 1, Max: 1}),
			ResultSize:   &checker.SizeEstimate{Min: 1, Max: 16}, // bytes of an address
		}
	}
	var opts []checker.CostOption
	for _, id := range parsesAddress() {
		opts = append(opts, checker.OverloadCostEstimate(id, estimate))
	}
	return cel.CostEstimatorOptions(opts...)
}

// addressTracking corrects the costs that an evaluation is charged.
func addressTracking() cel.ProgramOption {
	track := func(args []ref.Val, _ ref.Val) *uint64 {
		cost := uint64(1)
		if s, ok := args[len(args)-1].(types.String); ok {
			cost += uint64(len(s))
		}
		return &cost
	}
	var opts []interpreter.CostTrackerOption
	for _, id := range parsesAddress() {
		opts = append(opts, interpreter.OverloadCostTracker(id, track))
	}
	return cel.CostTrackerOptions(opts...)
}

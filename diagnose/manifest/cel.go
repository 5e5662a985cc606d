package manifest

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"
)

// ruleCost is the cost limit of a rule, so that one with a huge value is aborted. The API server's
// own limit is as high; the largest valid graph costs a tenth.
const ruleCost = 1_000_000

func newEnv() (*cel.Env, error) {
	return cel.NewEnv(cel.Variable("self", cel.DynType), ext.Strings(), cel.CrossTypeNumericComparisons(true))
}

// compile compiles the rules and the pattern of a schema, which may be nil, and its subschemas.
func (s *schema) compile(env *cel.Env) error {
	if s == nil {
		return nil
	}
	transition := regexp.MustCompile(`\boldSelf\b`)
	for _, r := range s.Rules {
		if transition.MatchString(r.Rule) {
			continue
		}
		ast, issues := env.Compile(r.Rule)
		if err := issues.Err(); err != nil {
			return fmt.Errorf("rule %s: %w", r.Rule, err)
		}
		program, err := env.Program(ast, cel.CostLimit(ruleCost))
		if err != nil {
			return fmt.Errorf("rule %s: %w", r.Rule, err)
		}
		r.program = program
	}
	if s.Pattern != "" {
		pattern, err := regexp.Compile(s.Pattern)
		if err != nil {
			return err
		}
		s.pattern = pattern
	}
	for _, within := range slices.AppendSeq([]*schema{s.Items, s.AdditionalProperties}, maps.Values(s.Properties)) {
		if err := within.compile(env); err != nil {
			return err
		}
	}
	return nil
}

// check returns why a value, with defaults filled in, violates the rule, or nil.
func (r *rule) check(value any) error {
	if r.program == nil {
		return nil
	}
	out, _, err := r.program.Eval(map[string]any{"self": value})
	switch {
	case err != nil && r.Message == "":
		return err
	case err != nil:
		return fmt.Errorf("%s: %w", r.Message, err)
	case out == types.True:
		return nil
	}
	return errors.New(r.Message)
}

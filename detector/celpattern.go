package detector

import (
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// fixedPatterns is a [cel.ASTValidator] that requires valid regular expressions, in quotes. A pattern
// that is built from an event's text could be invalid or too large at run time, and is the choice
// of whoever wrote that text.
type fixedPatterns struct{}

// Name implements [cel.ASTValidator].
func (fixedPatterns) Name() string { return "fixed patterns" }

// Validate implements [cel.ASTValidator].
func (fixedPatterns) Validate(_ *cel.Env, _ cel.ValidatorConfig, a *ast.AST, issues *cel.Issues) {
	for _, call := range ast.MatchDescendants(ast.NavigateAST(a), ast.KindMatcher(ast.CallKind)) {
		function, args := call.AsCall().FunctionName(), call.AsCall().Args()
		var pattern ast.Expr
		switch {
		case function == overloads.Matches && len(args) > 0:
			pattern = args[len(args)-1] // text.matches(pattern) and matches(text, pattern)
		case strings.HasPrefix(function, "regex.") && len(args) > 1:
			pattern = args[1]
		default:
			continue
		}
		text, ok := literalOf[types.String](pattern)
		if !ok {
			issues.ReportErrorAtID(pattern.ID(), "the pattern of %s must be one text in quotes; contains() searches for the text of a field", function)
		} else if _, err := regexp.Compile(string(text)); err != nil {
			issues.ReportErrorAtID(pattern.ID(), "the pattern of %s is invalid: %v", function, err)
		}
	}
}

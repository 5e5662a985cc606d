package detector

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// fixedPatterns is a [cel.ASTValidator] that requires valid regular expressions, in quotes. A pattern
// built from an event's text could be invalid or too large at run time, and the author of that text
// would control it.
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

// patternSize returns the instructions of a compiled pattern, and whether a search for all matches may
// read the same text again for each of them.
func patternSize(e ast.Expr) (instructions uint64, again bool) {
	text, _ := literalOf[types.String](e)
	re, err := syntax.Parse(string(text), syntax.Perl)
	if err != nil {
		return maxRegexProgram, true // refused by [fixedPatterns]
	}
	program, err := syntax.Compile(re.Simplify())
	if err != nil {
		return maxRegexProgram, true
	}
	return uint64(len(program.Inst)), readsAgain(re, false, false)
}

// readsAgain reports whether a part of a pattern may read far ahead, fail there, and leave a short
// match. For example, "a.*b" in "a.*b|a" does if there is no b. optional means that the pattern also
// matches without this part; follows means that more of an optional part must match after it.
func readsAgain(re *syntax.Regexp, optional, follows bool) bool {
	unbounded := re.Op == syntax.OpStar || re.Op == syntax.OpPlus || re.Op == syntax.OpRepeat && re.Max < 0
	if unbounded && follows {
		return true
	}
	switch re.Op {
	case syntax.OpAlternate, syntax.OpQuest, syntax.OpStar, syntax.OpPlus:
		optional = true
	case syntax.OpRepeat:
		follows = follows || optional && re.Min > 1
		optional = true
	}
	for i, sub := range re.Sub {
		more := re.Op == syntax.OpConcat && optional && slices.ContainsFunc(re.Sub[i+1:], needsText)
		if readsAgain(sub, optional, follows || more) {
			return true
		}
	}
	return false
}

// needsText reports whether a part of a pattern does not match the empty text everywhere.
func needsText(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpStar, syntax.OpQuest:
		return false
	case syntax.OpRepeat:
		return re.Min > 0 && needsText(re.Sub[0])
	case syntax.OpAlternate:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !needsText(sub) })
	case syntax.OpConcat, syntax.OpCapture, syntax.OpPlus:
		return slices.ContainsFunc(re.Sub, needsText)
	}
	return true
}

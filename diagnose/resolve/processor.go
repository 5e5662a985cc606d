package resolve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/remote"
	"github.com/kernosis/kernosis/diagnose/runner"
)

// builtin resolves an Operation that runs a built-in with fixed parameters.
func (r *resolver) builtin(op *v1alpha1.Operation, p *v1alpha1.Builtin, o *resolved) {
	const field = "spec.processor.builtin"
	b, ok := operation.Lookup(r.c.Builtins, p.Name)
	if !ok {
		r.wrong(v1alpha1.ReasonUnknownBuiltin, op, field+".name", "no built-in is named %.80q%s", p.Name, document.Suggest(p.Name, r.c.builtinNames()))
		return
	}
	if op.Spec.TenantSafe && !b.TenantSafe {
		r.wrong(v1alpha1.ReasonInvalidParameter, op, "spec.tenantSafe", "the built-in %s exposes more than one pod: it is not safe for tenants", b.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Parameters)) {
		i := slices.IndexFunc(b.Parameters, func(have operation.Parameter) bool { return have.Name == name })
		if i < 0 {
			r.wrong(v1alpha1.ReasonInvalidParameter, op, field+".parameters."+name, "%s has no parameter %.80q%s", b.Name, name, document.Suggest(name, parameterNames(b)))
		} else if err := b.Parameters[i].Check(p.Parameters[name]); err != nil {
			r.wrong(v1alpha1.ReasonInvalidParameter, op, field+".parameters."+name, "%s", err)
		}
	}
	o.step.Operation = runner.Builtin(b, p.Parameters)
	o.input = input{builtin: b, fixed: p.Parameters}
}

func parameterNames(b *operation.Builtin) []string {
	names := make([]string, len(b.Parameters))
	for i := range names {
		names[i] = b.Parameters[i].Name
	}
	return names
}

// server resolves an Operation that calls a web server.
func (r *resolver) server(op *v1alpha1.Operation, p *v1alpha1.HTTPServer, o *resolved) {
	const field = "spec.processor.httpServer"
	if _, err := remote.ServerURL(p); err != nil {
		r.wrong(v1alpha1.ReasonInvalidParameter, op, field, "%s", strings.TrimPrefix(err.Error(), "httpServer: "))
	}
	t := remote.TLS{CA: p.CABundle, ServerName: p.ServerName}
	if err := t.Check(); err != nil {
		r.wrong(v1alpha1.ReasonInvalidParameter, op, field+".caBundle", "%s", err)
	}
	read := r.c.Secret
	if s := p.ClientCertificateSecret; s != nil && read == nil {
		r.wrong(v1alpha1.ReasonInvalidParameter, op, field+".clientCertificateSecret", "the Secret %s can't be read without a cluster", s.Name)
	}
	run := func(ctx context.Context, call *operation.Call) (operation.Output, error) {
		with := t
		if s := p.ClientCertificateSecret; s != nil {
			if err := withSecret(ctx, read, s.Name, &with); err != nil {
				return operation.Output{}, fmt.Errorf("clientCertificateSecret: %w", err)
			}
		}
		return remote.CallServer(ctx, p, with, call)
	}
	o.step.Operation, o.input = runner.Func(op.Spec.DeclaredEffect(), run), input{all: true}
}

// withSecret adds the certificates of a Secret of type kubernetes.io/tls.
func withSecret(ctx context.Context, read func(context.Context, string) (map[string][]byte, error), name string, t *remote.TLS) error {
	data, err := read(ctx, name)
	if err != nil {
		return err
	}
	t.Cert, t.Key = data["tls.crt"], data["tls.key"]
	if len(t.Cert) == 0 || len(t.Key) == 0 {
		return errors.New("the Secret " + name + " has no tls.crt or no tls.key")
	}
	if len(t.CA) == 0 {
		t.CA = data["ca.crt"]
	}
	return t.Check()
}

// script resolves an Operation that runs a script.
func (r *resolver) script(op *v1alpha1.Operation, p *v1alpha1.ScriptRunner, o *resolved) {
	if err := remote.CheckScript(p); err != nil {
		r.wrong(v1alpha1.ReasonInvalidParameter, op, "spec.processor.scriptRunner", "%s", strings.TrimPrefix(err.Error(), "scriptRunner: "))
	}
	scripts := r.c.Scripts
	run := func(ctx context.Context, call *operation.Call) (operation.Output, error) {
		if scripts == nil {
			return operation.Output{}, remote.ErrScriptsOff
		}
		return scripts.Run(ctx, p, call)
	}
	o.step.Operation = runner.Func(op.Spec.DeclaredEffect(), run)
	o.input = input{script: true, keys: p.ArgKeys, result: p.OperationResultKey}
}
